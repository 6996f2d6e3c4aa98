"""Definitions that are the same program in both versions: equal bytecode but for the names of local variables."""

from __future__ import annotations

import ast
from types import CodeType

# What reads names, documentation or source text makes a difference of what is none in bytecode: in a function that
# reads its own variables, or in a file with something that reads those of its callers.
_READING = frozenset({"locals", "vars", "dir", "eval", "exec"})
_SOURCES = frozenset(
    {"getsource", "getsourcelines", "getdoc", "__code__", "__doc__", "triton", "script", "script_method"}
    | {"inspect", "_getframe", "f_locals", "f_back", "tb_frame", "settrace", "setprofile"}
)
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_LEAVING = ast.Return | ast.Raise | ast.Continue | ast.Break


def same_definitions(original: bytes, changed: bytes, *, messages: bool = True) -> frozenset[str]:
    """Return the names of the top-level definitions whose statements are other text and the same program.

    Local variables may have other names, what follows a branch that leaves may be its `else`, a conditional expression
    may be a statement, and a result may have a name. Without `messages` the texts of errors may be others, too, unless
    the file looks into errors. A file that reads source text or frames has no such definitions.
    """
    if any(_reads_sources(text) for text in (original, changed)):
        return frozenset()
    before, after = _definitions(original), _definitions(changed)
    texts = not messages and not any(map(_looks_into_errors, (original, changed)))
    return frozenset(name for name in before.keys() & after.keys() if _same(before[name], after[name], texts))


def _reads_sources(text: bytes) -> bool:
    return any(_SOURCES.intersection(_words(node)) for node in ast.walk(ast.parse(text)))


def _looks_into_errors(text: bytes) -> bool:
    return any(isinstance(node, ast.ExceptHandler) and node.name for node in ast.walk(ast.parse(text)))


def _definitions(text: bytes) -> dict[str, ast.stmt]:
    """Return the definitions of a file whose name stands for one statement only."""
    found: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
    top = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name: nodes[0] for name, nodes in found.items() if name in top and len(nodes) == 1}


def _same(before: ast.stmt, after: ast.stmt, texts: bool) -> bool:
    """Whether two definitions are one program; with `texts`, but for the texts of their errors."""
    if texts:
        before, after = (_Untexted().visit(node) for node in (before, after))
    try:
        ours, theirs = (_plain(_compiled(node)) for node in (before, after))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return ours == theirs


def _compiled(node: ast.stmt) -> CodeType:
    tree = ast.Module([_Normal().visit(node)], [])
    code = compile(ast.fix_missing_locations(tree), "", "exec", dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


def _plain(code: CodeType) -> tuple[object, ...]:
    """Return what of a code object decides what it does; names of local variables where nothing reads them."""
    constants = tuple(
        _plain(value) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
        for value in code.co_consts
    )
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    names: object = code.co_varnames if _READING & set(code.co_names) else code.co_varnames[:count]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_nlocals, code.co_flags
    cells = code.co_freevars, code.co_cellvars
    handlers = getattr(code, "co_exceptiontable", b"")  # before Python 3.11 a part of the bytecode
    return code.co_name, code.co_code, constants, code.co_names, names, counts, cells, handlers


class _Untexted(ast.NodeTransformer):
    """Takes the literal texts out of the errors that are raised; what is computed for them stays."""

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call):
            node.exc.args = [self._untexted(argument) for argument in node.exc.args]
        return node

    def _untexted(self, argument: ast.expr) -> ast.expr:
        match argument:
            case ast.Constant(str()):
                return ast.copy_location(ast.Constant(""), argument)
            case ast.JoinedStr(values):
                computed = [value for value in values if not isinstance(value, ast.Constant)]
                return ast.copy_location(ast.JoinedStr(computed) if computed else ast.Constant(""), argument)
        return argument


class _Normal(ast.NodeTransformer):
    """Gives statements that do the same one form."""

    def __init__(self) -> None:
        self._functions: list[ast.AST] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, self._block(block))
        return node

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        if not block:
            return []
        first, following = block[0], block[1:]
        match first:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _returned(
                following
            ) == name and self._is_plain_local(name):
                return self._block([ast.Return(value)])
            case ast.Return(value=ast.IfExp(test, body, orelse)):
                return self._block([ast.If(test, [ast.Return(body)], [ast.Return(orelse)])])
            case ast.Assign(targets=[target], value=ast.IfExp(test, body, orelse)):
                sides = [[ast.Assign([target], side, lineno=0)] for side in (body, orelse)]
                return self._block([ast.If(test, [*sides[0]], [*sides[1]]), *following])
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value, simple=1) if (
                self._functions and isinstance(self._functions[-1], ast.FunctionDef)
            ):
                return self._block([ast.Assign([target], value, lineno=0), *following])
            case ast.If(test, body, orelse) if following and (orelse or _leaves(body)):
                leaves = [_leaves(side) for side in (body, orelse) if side]
                if (leaves[0] and not all(leaves[1:])) or leaves == [True]:
                    return self._block([ast.If(test, body, [*orelse, *following])])
                if _returned(following) and not any(leaves):
                    return self._block([ast.If(test, [*body, *following], [*orelse, *following])])
            case _:
                pass
        if isinstance(first, ast.If):
            first = self._positive(ast.If(first.test, self._block(first.body), self._block(first.orelse)))
        return [first, *self._block(following)]

    def _positive(self, branch: ast.If) -> ast.If:
        """Exchange the branches of a test that something is not so."""
        if branch.orelse:
            match branch.test:
                case ast.UnaryOp(ast.Not(), operand):
                    return self._positive(ast.If(operand, branch.orelse, branch.body))
                case ast.Compare(left, [ast.IsNot()], comparators):
                    return ast.If(ast.Compare(left, [ast.Is()], comparators), branch.orelse, branch.body)
        return branch

    def _is_plain_local(self, name: str) -> bool:
        """Whether a variable is one of a function that nothing else than its own statements reads."""
        function = self._functions[-1] if self._functions else None
        if not isinstance(function, ast.FunctionDef):
            return False
        nodes = [node for node in ast.walk(function) if node is not function]
        inner = [node for node in nodes if isinstance(node, _SCOPES | ast.comprehension)]
        read = {node.id for scope in inner for node in ast.walk(scope) if isinstance(node, ast.Name)}
        declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        held = any(isinstance(node, ast.Try | ast.With) for node in nodes)
        return not held and name not in read | declared and not (_READING & {_name(node) for node in nodes})


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether nothing after a block runs."""
    match block[-1]:
        case ast.If(_, body, orelse):
            return bool(orelse) and _leaves(body) and _leaves(orelse)
        case last:
            return isinstance(last, _LEAVING)


def _returned(statements: list[ast.stmt]) -> str:
    """Return the name of the variable that is returned, where statements do nothing else."""
    match statements:
        case [ast.Return(value=ast.Name(name))]:
            return name
    return ""


def _words(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a node reads or imports."""
    match node:
        case ast.alias(name):
            return tuple(name.split("."))
        case ast.ImportFrom(module):
            return tuple((module or "").split("."))
    return (_name(node),)


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
