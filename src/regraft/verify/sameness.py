"""Find definitions that are the same program in both versions: equal bytecode but for the names of
local variables."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from types import CodeType

from regraft.verify.changes import bound_names, same_surroundings
from regraft.verify.noteless import Noteless
from regraft.verify.syntax import SCOPES, name_of, words_of

# Names through which code reads variable names, documentation or source text, which equal bytecode
# does not decide: _READING in a function that reads its own variables, _SOURCES in a file that can
# read those of its callers.
_READING = frozenset({"locals", "vars", "dir", "eval", "exec"})
_SOURCES = frozenset(
    {
        "getsource",
        "getsourcelines",
        "getdoc",
        "__code__",
        "__doc__",
        "script",
        "script_method",
        "script_if_tracing",
    }
    | {
        "inspect",
        "_getframe",
        "_current_frames",
        "f_locals",
        "f_back",
        "f_code",
        "tb_frame",
        "settrace",
        "setprofile",
    }
    | {
        "gi_frame",
        "gi_code",
        "cr_frame",
        "cr_code",
        "ag_frame",
        "ag_code",
        "gc",
        "builtins",
        "__builtins__",
    }
    | {"__file__", "__debug__", "linecache", "dis"}
    | {"triton", "numba", "njit", "numexpr", "pandas", "tilelang", "cutlass", "taichi", "helion"}
)
# of `inspect`
_SIGNATURES = frozenset(
    {"signature", "Parameter", "Signature", "isclass", "isfunction", "ismethod"}
)
# Names through which code gets hold of errors without `except ... as`: there the text of an error
# is a result.
_ERRORS = frozenset(
    {
        "__exit__",
        "__aexit__",
        "exc_info",
        "traceback",
        "excepthook",
        "unraisablehook",
        "exception",
        "throw",
    }
    | {
        "return_exceptions",
        "__context__",
        "__cause__",
        "last_value",
        "last_exc",
        "ExitStack",
        "AsyncExitStack",
    }
)
# Builtin errors whose arguments decide more than their text.
_STRUCTURED_ERRORS = (
    StopIteration,
    StopAsyncIteration,
    UnicodeError,
    OSError,
    ImportError,
    SyntaxError,
)
# statements that can run code after a `return`
_FINALISING = frozenset({"Try", "TryStar", "With", "AsyncWith"})
_JUMPS = ast.Return | ast.Raise | ast.Continue | ast.Break


def same_definitions(
    original: bytes, changed: bytes, *, messages: bool = True, return_classes: bool = False
) -> frozenset[str]:
    """Return the names of the top-level definitions that are the same program in both versions,
    also if their text differs.

    Local variables may have other names, the statements after a branch that leaves may be its
    `else`, a conditional expression may be a statement, and a result may have a name. Without
    `messages` these may differ, too: docstrings; the texts of builtin errors unless the file looks
    into errors; annotations that nothing reads; and `super()` may name its class, below a decorator
    only if decorators `return_classes` as they are. A file that reads source text or frames has no
    such definitions, nor has a file whose module level differs: a name in equal text may mean
    something else there.
    """
    trees = ast.parse(original), ast.parse(changed)
    if any(map(_reads_sources, trees)) or not same_surroundings(original, changed):
        return frozenset()
    old_definitions, new_definitions = map(_definitions, trees)
    text_errors = frozenset() if messages or any(map(_looks_into_errors, trees)) else _errors(trees)
    future_imports = [
        node
        for node in trees[0].body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    pairs = {
        name: (old_definitions[name], new_definitions[name])
        for name in old_definitions.keys() & new_definitions.keys()
    }
    if not messages:
        noteless = Noteless(trees, return_classes)
        pairs = {
            name: (noteless.form_of(old), noteless.form_of(new))
            for name, (old, new) in pairs.items()
        }
    return frozenset(
        name
        for name, (old, new) in pairs.items()
        if _is_same_program(old, new, text_errors, future_imports)
    )


def _reads_sources(tree: ast.Module) -> bool:
    """Return whether a file can read its source text, or local variables other than by `locals()`
    in their own function.
    """
    called_names = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    harmless_words = {"inspect"} if _reads_signatures_only(tree) else set()
    for node in ast.walk(tree):
        words = set(words_of(node)) - harmless_words
        if _SOURCES.intersection(words) or (
            isinstance(node, ast.alias) and _READING.intersection(words)
        ):
            return True
        if isinstance(node, ast.Name) and node.id in _READING and id(node) not in called_names:
            return True
    return False


def _reads_signatures_only(tree: ast.Module) -> bool:
    """Return whether a file uses `inspect` for the signatures and kinds of functions alone."""
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.ImportFrom("inspect", aliases) if (
                not {alias.name for alias in aliases} <= _SIGNATURES
            ):
                return False
            case ast.alias("inspect", str()):
                return False
    signature_uses = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in _SIGNATURES
    }
    return all(id(node) in signature_uses for node in nodes if name_of(node) == "inspect")


def _looks_into_errors(tree: ast.Module) -> bool:
    """Return whether a file gets hold of an error that was raised."""
    nodes = list(ast.walk(tree))
    binds_errors = any(isinstance(node, ast.ExceptHandler) and node.name for node in nodes)
    return binds_errors or any(_ERRORS.intersection(words_of(node)) for node in nodes)


def _errors(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of the builtin errors whose argument is only a text and whose name no file
    of `trees` binds."""
    bound = frozenset().union(*map(bound_names, trees))
    if "*" in bound:
        return frozenset()
    values = ((name, value) for name, value in vars(builtins).items() if name not in bound)
    errors = (
        (name, value)
        for name, value in values
        if isinstance(value, type) and issubclass(value, Exception)
    )
    return frozenset(name for name, value in errors if not issubclass(value, _STRUCTURED_ERRORS))


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the top-level definitions of a file by name, without names that several statements
    define."""
    definition_types = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes_by_name: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(tree):
        if isinstance(node, definition_types):
            nodes_by_name.setdefault(node.name, []).append(node)
    top_level_names = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return {
        name: nodes[0]
        for name, nodes in nodes_by_name.items()
        if name in top_level_names and len(nodes) == 1
    }


def _is_same_program(
    old_definition: ast.stmt,
    new_definition: ast.stmt,
    errors: frozenset[str],
    future_imports: list[ast.ImportFrom],
) -> bool:
    """Return whether two definitions compile to the same program, but for the texts of some
    errors."""
    if errors:
        old_definition, new_definition = (
            _ErrorTextRemover(errors).visit(node) for node in (old_definition, new_definition)
        )
    try:
        old_code, new_code = (
            _code_key(_compile(node, future_imports)) for node in (old_definition, new_definition)
        )
    except (SyntaxError, ValueError, RecursionError):
        return False
    return old_code == new_code


def _compile(node: ast.stmt, future_imports: list[ast.ImportFrom]) -> CodeType:
    """Compile a definition in its normal form, together with the `__future__` imports of
    its file."""
    tree = ast.Module([*future_imports, _Normaliser().visit(node)], [])
    code = compile(ast.fix_missing_locations(tree), "", "exec", dont_inherit=True, optimize=0)
    assert isinstance(code, CodeType)
    return code


def _code_key(code: CodeType) -> tuple[object, ...]:
    """Return the parts of a code object that decide its behaviour; names of local variables are in
    it where the code can read them.
    """
    constants = tuple(
        _code_key(value) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
        for value in code.co_consts
    )
    argument_count = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 4)
        + bool(code.co_flags & 8)
    )
    names: object = (
        code.co_varnames if _READING & set(code.co_names) else code.co_varnames[:argument_count]
    )
    sizes = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_nlocals,
        code.co_flags,
    )
    cells = code.co_freevars, code.co_cellvars
    handlers = getattr(code, "co_exceptiontable", b"")  # before Python 3.11 a part of the bytecode
    return code.co_name, code.co_code, constants, code.co_names, names, sizes, cells, handlers


class _ErrorTextRemover(ast.NodeTransformer):
    """Takes the literal texts out of the errors that are raised; computed parts of the
    texts stay."""

    def __init__(self, errors: frozenset[str]) -> None:
        self._errors = errors

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        match node.exc:
            case ast.Call(ast.Name(name), [argument], []) if name in self._errors:
                node.exc.args = [self._remove_text(argument)]
        return node

    def _remove_text(self, argument: ast.expr) -> ast.expr:
        """Return the argument of an error without its literal text."""
        match argument:
            case ast.Constant(str()):
                return ast.copy_location(ast.Constant(""), argument)
            case ast.JoinedStr(values):
                computed = [value for value in values if not isinstance(value, ast.Constant)]
                return ast.copy_location(
                    ast.JoinedStr(computed) if computed else ast.Constant(""), argument
                )
        return argument


class _Normaliser(ast.NodeTransformer):
    """Gives statements that do the same one form."""

    def __init__(self) -> None:
        self._functions: list[ast.AST] = []
        # variables of the innermost function that only named a result
        self._dropped: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Give a function its normal form; raises ValueError where a dropped variable is still
        read."""
        self._functions.append(node)
        outer, self._dropped = self._dropped, set()
        self.generic_visit(node)
        self._functions.pop()
        names = [
            part
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and part.id in self._dropped
        ]
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
                setattr(node, name, self._normalise(block))
        return node

    def _normalise(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Return the normal form of the statements of a block.

        A result has no name, a conditional expression is a statement, an annotated assignment has
        no annotation, the statements after a branch that leaves are its `else`, and tests are not
        negated.
        """
        if not block:
            return []
        first, following = block[0], block[1:]
        match first:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _returned_variable(
                following
            ) == name and self._is_plain_local(name):
                self._dropped.add(name)
                return self._normalise([ast.Return(value)])
            case ast.Return(value=ast.IfExp(test, body, orelse)):
                return self._normalise(
                    [ast.If(test, [ast.Return(body)], [ast.Return(orelse)]), *following]
                )
            case ast.Assign(targets=[target], value=ast.IfExp(test, body, orelse)):
                sides = [[ast.Assign([target], side, lineno=0)] for side in (body, orelse)]
                return self._normalise([ast.If(test, [*sides[0]], [*sides[1]]), *following])
            case ast.AnnAssign(
                target=ast.Name() as target, value=ast.expr() as value, simple=1
            ) if self._functions and isinstance(self._functions[-1], ast.FunctionDef):
                return self._normalise([ast.Assign([target], value, lineno=0), *following])
            case ast.If(test, body, orelse) if following and (orelse or _always_jumps(body)):
                leaves = [_always_jumps(side) for side in (body, orelse) if side]
                if (leaves[0] and not all(leaves[1:])) or leaves == [True]:
                    return self._normalise([ast.If(test, body, [*orelse, *following])])
                if _returned_variable(following) and not any(leaves):
                    return self._normalise(
                        [ast.If(test, [*body, *following], [*orelse, *following])]
                    )
            case _:
                pass
        if isinstance(first, ast.If):
            first = self._without_negation(
                ast.If(first.test, self._normalise(first.body), self._normalise(first.orelse))
            )
        return [first, *self._normalise(following)]

    def _without_negation(self, branch: ast.If) -> ast.If:
        """Return an `if` whose test is not negated: its branches are exchanged for `not` and `is
        not`."""
        if branch.orelse:
            match branch.test:
                case ast.UnaryOp(ast.Not(), operand):
                    return self._without_negation(ast.If(operand, branch.orelse, branch.body))
                case ast.Compare(left, [ast.IsNot()], comparators):
                    return ast.If(
                        ast.Compare(left, [ast.Is()], comparators), branch.orelse, branch.body
                    )
        return branch

    def _is_plain_local(self, name: str) -> bool:
        """Return whether a name is a local variable of the current function that only the
        function's own statements read.
        """
        function = self._functions[-1] if self._functions else None
        if not isinstance(function, ast.FunctionDef):
            return False
        nodes = [node for node in ast.walk(function) if node is not function]
        inner_scopes = [node for node in nodes if isinstance(node, SCOPES)]
        inner_reads = {
            node.id
            for scope in inner_scopes
            for node in ast.walk(scope)
            if isinstance(node, ast.Name)
        }
        declared = {
            name
            for node in nodes
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        has_cleanup = any(type(node).__name__ in _FINALISING for node in nodes)
        may_be_mangled = name.startswith("_")  # `__name` and `_Class__name` can be one variable
        return not (
            has_cleanup
            or may_be_mangled
            or name in inner_reads | declared
            or _READING & {name_of(node) for node in nodes}
        )


def _always_jumps(block: list[ast.stmt]) -> bool:
    """Return whether nothing that follows a block runs after it: the block returns, raises,
    continues or breaks."""
    match block[-1]:
        case ast.If(_, body, orelse):
            return bool(orelse) and _always_jumps(body) and _always_jumps(orelse)
        case statement:
            return isinstance(statement, _JUMPS)


def _returned_variable(statements: list[ast.stmt]) -> str:
    """Return the name of the variable in `return name` where that is the only statement,
    else ""."""
    match statements:
        case [ast.Return(value=ast.Name(name))]:
            return name
    return ""
