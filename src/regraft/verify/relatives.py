"""Which other definitions of a file decide what a changed class does: they have to run as well."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
SUBCLASS, BUILDER, MODIFIER = "inherits from it", "builds it", "can modify it"

# Names whose replacement changes any module, whatever its text mentions.
_ALWAYS = frozenset({"forward", "__call__", "__class__", "__dict__", "_modules", "_parameters", "_buffers"})
_SETTERS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
_REGISTERING = frozenset({"add_module", "register_module", "set_submodule", "register_parameter", "register_buffer"})
_CHANGING = frozenset({"append", "insert", "extend", "pop", "clear", "update", "__setitem__", "__delitem__"})
_WRAPPING = frozenset({"weight_norm", "spectral_norm", "register_parametrization", "remove_weight_norm"})

# Private methods that `nn.Module` calls by itself.
_OF_MODULES = frozenset({
    "_apply", "_call_impl", "_wrapped_call_impl", "_slow_forward", "_get_name", "_named_members", "_infer_parameters",
    "_load_from_state_dict", "_save_to_state_dict", "_get_backward_hooks", "_get_backward_pre_hooks",
    "_maybe_warn_non_full_backward_hook", "_replicate_for_data_parallel",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Relative:
    """A definition that subclasses, builds or modifies a changed class, with its 1-based first and last line."""

    name: str
    why: str
    first: int
    last: int


class Family:
    """The definitions of one file and who refers to whom, by name, also through functions and variables."""

    def __init__(self, tree: ast.Module, chunks: Mapping[str, Definition]) -> None:
        self._nodes = chunks
        self._names: dict[str, set[str]] = {}
        for name, node in chunks.items():
            self._names.setdefault(_base(name), set()).update(used_names(node))
        for statement in tree.body:
            for target in _targets(statement):
                self._names.setdefault(target, set()).update(_names(statement))
        self._classes = {_base(name) for name, node in chunks.items() if isinstance(node, ast.ClassDef)}

    def relatives(
        self, changed: str, mentioned: frozenset[str], edited: frozenset[str] | None = None
    ) -> tuple[Relative, ...]:
        """Return the relatives of a changed class; `mentioned` are the attributes that its two versions mention.

        `edited` are the methods that the change is in, None where it is not in methods alone.
        """
        cls = _base(changed)
        heirs = self._heirs({cls})
        builders = {n for n in self._classes if cls in self._reach(n, through_classes=False)} - heirs - {cls}
        # an heir of a builder that defines no function does nothing of its own
        builders |= {name for name in self._heirs(builders) - heirs - {cls} if self._defines_functions(name)}
        found = []
        for name, node in self._nodes.items():
            own = _base(name)
            if own == cls or self._apart(node, cls, own):
                continue
            if own in heirs:
                if not (edited and self._without(node, changed, edited)):
                    found.append(_relative(name, SUBCLASS, node))
            elif own in builders:
                found.append(_relative(name, BUILDER, node))
            elif self._modifies(own, node, mentioned):
                found.append(_relative(name, MODIFIER, node))
        return tuple(found)

    def mentioned(self, changed: str) -> frozenset[str]:
        """Return the attribute names in a class and in its bases of this file."""
        waiting = [_base(changed)]
        seen: set[str] = set()
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                for node in (n for key, n in self._nodes.items() if _base(key) == name):
                    found.update(n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))
                    waiting.extend(_bases(node) if isinstance(node, ast.ClassDef) else ())
        return frozenset(found)

    def _without(self, heir: Definition, changed: str, edited: frozenset[str]) -> bool:
        """Whether an heir runs none of the edited methods: it has its own, or nothing in it asks for them."""
        parent = self._nodes[changed]
        if not isinstance(heir, ast.ClassDef) or not isinstance(parent, ast.ClassDef) or heir.keywords:
            return False
        own = {_method(node) for node in heir.body}
        rest = edited - own
        if [ast.unparse(base) for base in heir.bases] != [_base(changed)]:
            return False
        if rest and ([ast.unparse(base) for base in parent.bases] != ["nn.Module"] or not all(map(_private, rest))):
            return False
        asked = {word for node in (*heir.body, *heir.decorator_list) for word in _words(node)}
        inherited = [n for n in parent.body if _method(n) not in edited and _method(n) not in own - asked]
        if any(_base(changed) in _names(node) for node in (*heir.body, *inherited)):
            return False
        return not edited & asked.union(*map(_words, inherited if rest else ()))

    def _apart(self, node: Definition, cls: str, own: str) -> bool:
        return cls not in self._reach(own, through_classes=True)

    def _defines_functions(self, cls: str) -> bool:
        nodes = (node for name, node in self._nodes.items() if _base(name) == cls)
        return any(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes for one in ast.walk(node))

    def _heirs(self, parents: set[str]) -> set[str]:
        """Return the classes below some classes; a base may be written through variables and functions."""
        heirs: set[str] = set()
        while True:
            known = parents | heirs
            more = {
                _base(name)
                for name, node in self._nodes.items()
                if isinstance(node, ast.ClassDef) and known & self._expanded(_bases(node))
            }
            if more <= known:
                return heirs
            heirs |= more - parents

    def _reach(self, name: str, *, through_classes: bool) -> set[str]:
        return self._expanded(self._names.get(name, set()), through_classes=through_classes)

    def _expanded(self, names: Iterable[str], *, through_classes: bool = False) -> set[str]:
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                if through_classes or name not in self._classes:
                    waiting.extend(self._names.get(name, ()))
        return seen

    def _modifies(self, own: str, node: Definition, mentioned: frozenset[str]) -> bool:
        used = self._reach(own, through_classes=False)
        helpers = [n for name, n in self._nodes.items() if _base(name) in used and not isinstance(n, ast.ClassDef)]
        heir = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            isinstance(inner, ast.ClassDef) for inner in ast.walk(node)
        )
        return heir or any(_touches(one, mentioned | _ALWAYS) for one in (node, *helpers))


def _base(name: str) -> str:
    return name.partition("#")[0]


def _relative(name: str, why: str, node: Definition) -> Relative:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return Relative(_base(name), why, first, node.end_lineno or node.lineno)


def edited_methods(before: Definition | None, after: Definition) -> frozenset[str] | None:
    """Names of the methods in which two versions of a class differ; None where they differ elsewhere too."""
    if not isinstance(before, ast.ClassDef) or not isinstance(after, ast.ClassDef):
        return None
    sides = []
    for node in (before, after):
        methods = [part for part in node.body if _method(part)]
        texts = {_method(part): ast.dump(part) for part in methods}
        if len(texts) != len(methods):
            return None
        rest = [part for part in node.body if part not in methods]
        sides.append(([ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list, *rest)], texts))
    (shell, old), (other, new) = sides
    return frozenset(n for n in {*old, *new} if old.get(n) != new.get(n)) if shell == other else None


def _method(node: ast.AST) -> str:
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def _private(method: str) -> bool:
    """Whether only code that names a method runs it: no function of Python or of `nn.Module` calls it by itself."""
    return method.startswith("_") and not method.startswith("__") and method not in _OF_MODULES


def _words(node: ast.AST) -> Iterator[str]:
    """Attributes and texts in a statement, whatever a method can be asked for by; documentation aside."""
    documentation = {id(one.value) for one in ast.walk(node) if isinstance(one, ast.Expr)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            yield inner.attr
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and id(inner) not in documentation:
            yield from re.findall(r"\w+", inner.value)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def used_names(node: ast.AST) -> set[str]:
    """Names that a statement reads or sets, other than to ask of what class something is."""
    return _names(node) - _only_asked(node)


def _only_asked(node: ast.AST) -> set[str]:
    """Names that stand in the second argument of `isinstance` and `issubclass` and nowhere else: nothing is built."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    asked = [one.args[1] for one in calls if _names(one.func) & {"isinstance", "issubclass"} and len(one.args) > 1]
    inside = {id(n) for kind in asked for n in ast.walk(kind)}
    elsewhere = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in inside}
    return {name for kind in asked for name in _names(kind)} - elsewhere


def _bases(node: ast.ClassDef) -> set[str]:
    return {name for base in (*node.bases, *(k.value for k in node.keywords)) for name in _names(base)}


def _targets(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (name for target in targets for name in _names(target))


def _touches(node: ast.AST, attributes: frozenset[str]) -> bool:
    """Whether code can change an attribute, out of some, of another object than its own `self`."""
    return any(_stores(n, attributes) or _calls(n, attributes) for n in ast.walk(node))


def _stores(node: ast.AST, attributes: frozenset[str]) -> bool:
    if isinstance(node, ast.Attribute):
        private = node.attr in ("__dict__", "_modules", "_parameters", "_buffers")
        return (private or not isinstance(node.ctx, ast.Load)) and _foreign(node, attributes)
    return isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _foreign(node.value, attributes)


def _calls(node: ast.AST, attributes: frozenset[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    if name in _SETTERS:
        return _sets(node, attributes)
    if name in _WRAPPING or name == "vars":
        return True
    if not isinstance(called, ast.Attribute):
        return False
    hook = name.startswith("register_") and name.endswith("hook")
    if name in _REGISTERING or hook:
        return not _is_self(called.value)
    return name in _CHANGING and _foreign(called.value, attributes)


def _sets(call: ast.Call, attributes: frozenset[str]) -> bool:
    """Whether `setattr(object, name, ...)` can hit one of the attributes."""
    if len(call.args) < 2 or _is_self(call.args[0]):
        return False
    name = call.args[1]
    return not isinstance(name, ast.Constant) or name.value in attributes


def _foreign(node: ast.AST, attributes: frozenset[str]) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in attributes and not _is_self(node.value)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
