"""Definitions that are the same program in both versions: equal bytecode but for the names of local variables."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from types import CodeType

from regraft.verify.changes import bound_names, same_surroundings
from regraft.verify.noteless import Noteless
from regraft.verify.syntax import SCOPES, name_of, words_of

# What reads names, documentation or source text makes a difference of what is none in bytecode: in a function that
# reads its own variables, or in a file with something that reads those of its callers.
_READING = frozenset({"locals", "vars", "dir", "eval", "exec"})
_SOURCES = frozenset(
    {"getsource", "getsourcelines", "getdoc", "__code__", "__doc__", "script", "script_method", "script_if_tracing"}
    | {"inspect", "_getframe", "_current_frames", "f_locals", "f_back", "f_code", "tb_frame", "settrace", "setprofile"}
    | {"gi_frame", "gi_code", "cr_frame", "cr_code", "ag_frame", "ag_code", "gc", "builtins", "__builtins__"}
    | {"__file__", "__debug__", "linecache", "dis"}
    | {"triton", "numba", "njit", "numexpr", "pandas", "tilelang", "cutlass", "taichi", "helion"}
)
_SIGNATURES = frozenset({"signature", "Parameter", "Signature", "isclass", "isfunction", "ismethod"})  # of `inspect`
# What makes the text of an error a result: code that gets hold of errors without `except ... as`.
_ERRORS = frozenset(
    {"__exit__", "__aexit__", "exc_info", "traceback", "excepthook", "unraisablehook", "exception", "throw"}
    | {"return_exceptions", "__context__", "__cause__", "last_value", "last_exc", "ExitStack", "AsyncExitStack"}
)
# Builtin errors whose arguments decide more than a text.
_TELLING = (StopIteration, StopAsyncIteration, UnicodeError, OSError, ImportError, SyntaxError)
_HOLDING = frozenset({"Try", "TryStar", "With", "AsyncWith"})  # what can run code after a `return`
_LEAVING = ast.Return | ast.Raise | ast.Continue | ast.Break


def same_definitions(
    original: bytes, changed: bytes, *, messages: bool = True, return_classes: bool = False
) -> frozenset[str]:
    """Return the names of the top-level definitions whose statements are other text and the same program.

    Local variables may have other names, what follows a branch that leaves may be its `else`, a conditional expression
    may be a statement, and a result may have a name. Without `messages` docstrings may be others, and the texts of
    builtin errors unless the file looks into errors, annotations that nothing reads, and `super()` may name its class;
    below a decorator only if decorators `return_classes` as they are. A file that reads source text or frames has no
    such definitions, nor has one that does something else at module level: a name in equal text may mean something
    else there.
    """
    trees = ast.parse(original), ast.parse(changed)
    if any(map(_reads_sources, trees)) or not same_surroundings(original, changed):
        return frozenset()
    before, after = map(_definitions, trees)
    errors = frozenset() if messages or any(map(_looks_into_errors, trees)) else _errors(trees)
    future = [node for node in trees[0].body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    pairs = {name: (before[name], after[name]) for name in before.keys() & after.keys()}
    if not messages:
        noteless = Noteless(trees, return_classes)
        pairs = {name: (noteless.form_of(old), noteless.form_of(new)) for name, (old, new) in pairs.items()}
    return frozenset(name for name, (old, new) in pairs.items() if _same(old, new, errors, future))


def _reads_sources(tree: ast.Module) -> bool:
    """Whether a file can read its text, or the names of local variables other than by `locals()` in their function."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    harmless = {"inspect"} if _reads_signatures_only(tree) else set()
    for node in ast.walk(tree):
        words = set(words_of(node)) - harmless
        if _SOURCES.intersection(words) or (isinstance(node, ast.alias) and _READING.intersection(words)):
            return True
        if isinstance(node, ast.Name) and node.id in _READING and id(node) not in called:
            return True
    return False


def _reads_signatures_only(tree: ast.Module) -> bool:
    """Whether a file uses `inspect` for the signatures and kinds of functions alone."""
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.ImportFrom("inspect", names) if not {alias.name for alias in names} <= _SIGNATURES:
                return False
            case ast.alias("inspect", str()):
                return False
    known = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in _SIGNATURES}
    return all(id(node) in known for node in nodes if name_of(node) == "inspect")


def _looks_into_errors(tree: ast.Module) -> bool:
    """Whether something in a file gets hold of an error that was raised."""
    nodes = list(ast.walk(tree))
    named = any(isinstance(node, ast.ExceptHandler) and node.name for node in nodes)
    return named or any(_ERRORS.intersection(words_of(node)) for node in nodes)


def _errors(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the builtin errors whose argument is a text, by the names that nothing in the files binds."""
    bound = frozenset().union(*map(bound_names, trees))
    if "*" in bound:
        return frozenset()
    values = ((name, value) for name, value in vars(builtins).items() if name not in bound)
    errors = ((name, value) for name, value in values if isinstance(value, type) and issubclass(value, Exception))
    return frozenset(name for name, value in errors if not issubclass(value, _TELLING))


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the definitions of a file whose name stands for one statement only."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            found.setdefault(node.name, []).append(node)
    top = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name: nodes[0] for name, nodes in found.items() if name in top and len(nodes) == 1}


def _same(before: ast.stmt, after: ast.stmt, errors: frozenset[str], future: list[ast.ImportFrom]) -> bool:
    """Whether two definitions are one program, but for the texts of some errors."""
    if errors:
        before, after = (_Untexted(errors).visit(node) for node in (before, after))
    try:
        ours, theirs = (_plain(_compiled(node, future)) for node in (before, after))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return ours == theirs


def _compiled(node: ast.stmt, future: list[ast.ImportFrom]) -> CodeType:
    """Compile a definition in one form, with what its file imports from the future."""
    tree = ast.Module([*future, _Normal().visit(node)], [])
    code = compile(ast.fix_missing_locations(tree), "", "exec", dont_inherit=True, optimize=0)
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

    def __init__(self, errors: frozenset[str]) -> None:
        self._errors = errors

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        match node.exc:
            case ast.Call(ast.Name(name), [argument], []) if name in self._errors:
                node.exc.args = [self._untexted(argument)]
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
        self._dropped: set[str] = set()  # variables of the innermost function that named a result

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Give a function one form; raises ValueError where a variable would no longer be one of the function."""
        self._functions.append(node)
        outer, self._dropped = self._dropped, set()
        self.generic_visit(node)
        self._functions.pop()
        names = [part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in self._dropped]
        stored = {part.id for part in names if not isinstance(part.ctx, ast.Load)}
        stored.update(part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg))
        if any(part.id not in stored for part in names):
            raise ValueError("a variable that is read elsewhere has lost its last assignment")
        self._dropped = outer
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
                self._dropped.add(name)
                return self._block([ast.Return(value)])
            case ast.Return(value=ast.IfExp(test, body, orelse)):
                return self._block([ast.If(test, [ast.Return(body)], [ast.Return(orelse)]), *following])
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
        inner = [node for node in nodes if isinstance(node, SCOPES)]
        read = {node.id for scope in inner for node in ast.walk(scope) if isinstance(node, ast.Name)}
        declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        held = any(type(node).__name__ in _HOLDING for node in nodes)
        mangled = name.startswith("_")  # `__name` and `_Class__name` can be one variable
        return not (held or mangled or name in read | declared or _READING & {name_of(node) for node in nodes})


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
