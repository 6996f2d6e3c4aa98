"""Which functions of a file are worth lowering: those whose text can contain every operation that some pattern needs.

The answer comes from the words of the text, so it may keep too much, never too little. An operation gets into a
function in one of three ways, each of which leaves a word in its text or in that of a function it may inline:

* by a name of the operation: `F.softmax`, `x.softmax`, a local name that the file imports it under;
* by a call of an attribute whose layers (or functions, or choices of the configuration) may compute it;
* by a call of a value that the function itself makes: `nn.GELU()(x)`, `act = ACT2FN[name]; act(x)`.
"""

from __future__ import annotations

import ast
import functools
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from regraft.source.names import defaults, walk
from regraft.source.text import SourceFile
from regraft.structure.calls import CASTS, LIBRARY_OPS, OPERATOR_OPS, computes
from regraft.structure.expressions import ACTIVATION_TABLES, ACTIVATIONS
from regraft.structure.frame import Function
from regraft.structure.model import Layer
from regraft.structure.module import Module
from regraft.structure.norms import is_rms_norm
from regraft.structure.optable import table
from regraft.structure.package import is_class_name

_SPACED = bytes(byte if chr(byte).isalnum() or byte == ord("_") or byte > 127 else 32 for byte in range(256))
_ANYWHERE = OPERATOR_OPS | {f"{op}_" for op in OPERATOR_OPS}  # operators leave no word


@dataclass(frozen=True, slots=True)
class Need:
    """One node that a pattern cannot do without.

    op      canonical operation; `call` for a call of the function or layer `name`; `class` for a call of a layer whose
            class in the package is the norm `name`
    chosen  a layer whose type is only known at run time may compute it
    """

    op: str
    name: str = ""
    chosen: bool = False


Needs = frozenset[Need]


@dataclass(frozen=True, slots=True)
class _Words:
    """Words that give a need away: names of the operation, and of what makes a layer that computes it."""

    direct: frozenset[bytes]
    makers: frozenset[bytes]


class Relevance:
    """Decides for the functions of one module whether any of several patterns may match in them."""

    def __init__(self, module: Module, patterns: Collection[Needs]) -> None:
        self.module = module
        self.patterns = tuple(frozenset(one for one in needs if one.op not in _ANYWHERE) for needs in patterns)
        self._words: dict[ast.AST, frozenset[bytes]] = {}
        self._own: dict[str, dict[str, Function]] = {}
        self._elsewhere: dict[bytes, frozenset[bytes]] = {}
        self._calls: dict[ast.AST, _Calls] = {}
        self._classes: dict[str, dict[Need, frozenset[bytes]] | None] = {}

    def wanted(self, cls: ast.ClassDef | None, function: Function) -> bool:
        """Whether a pattern may match in a function of a class, or in one outside of classes."""
        if not all(self.patterns):
            return True  # a pattern of nothing but operators
        attributes = self._attributes(cls) if cls is not None else {}
        if attributes is None:
            return False
        reached = self._reach([function], cls)
        words = self._union(reached)
        named, made = set(), set()
        for need, spelled in self._vocabulary.items():
            if not words.isdisjoint(spelled.direct) or not words.isdisjoint(attributes.get(need, ())):
                named.add(need)
            elif need.chosen or not words.isdisjoint(spelled.makers):
                made.add(need)
        if any(needs <= named for needs in self.patterns):
            return True
        return any(needs <= named | made for needs in self.patterns) and self._calls_what_it_makes(reached)

    def _calls_what_it_makes(self, functions: Iterable[Function]) -> bool:
        """Whether the functions may call a module or function that they built, chose or were given.

        That is a call of a local name, of an attribute that they store, or of what is neither name nor attribute.
        """
        bound: set[str] = set()
        called: set[str] = set()
        for function in functions:
            found = self._calls.get(function)
            if found is None:
                found = self._calls[function] = _calls_of(function)
            if found.other:
                return True
            bound |= found.bound
            called |= found.called
        return not bound.isdisjoint(called)

    def _attributes(self, cls: ast.ClassDef) -> dict[Need, frozenset[bytes]] | None:
        """Last names of a class's attributes that may meet each need; None when no pattern fits into the class."""
        if cls.name not in self._classes:
            self._classes[cls.name] = self._find_attributes(cls) if self._class_fits(cls) else None
        return self._classes[cls.name]

    def _class_fits(self, cls: ast.ClassDef) -> bool:
        """Whether the text of a class and its bases has the words: what their constructors build stands there."""
        module, bases = self.module, self.module.bases(cls)
        methods = [method for one in bases if module.owner(one) is module for method in module.methods(one).values()]
        followed = (module.owner(one).words(one) for one in bases if module.owner(one) is not module)
        words = self._union(self._reach(methods, cls)).union(*followed)
        spelled = self._vocabulary
        return any(
            all(
                one.chosen or one.op == "class" or not words.isdisjoint(spelled[one].direct | spelled[one].makers)
                for one in needs
            )
            for needs in self.patterns
        )

    def _find_attributes(self, cls: ast.ClassDef) -> dict[Need, frozenset[bytes]]:
        layers = self.module.layers(cls)
        return {
            need: frozenset(
                path.rpartition(".")[2].encode()
                for path, found in layers.items()
                if any(self._meets(layer, need) for layer in found)
            )
            for need in self._vocabulary
        }

    def _meets(self, layer: Layer, need: Need) -> bool:
        """Whether a layer, or a module inside it, may be what is needed."""
        if layer.choice and need.chosen:
            return True
        if need.op in ("call", "class"):
            known = layer.type == need.name if need.op == "call" else is_rms_norm(self.module, layer.type)
        else:
            known = computes(layer.type) == need.op
        return known or any(self._meets(item, need) for item in layer.items)

    # words

    @cached_property
    def _vocabulary(self) -> dict[Need, _Words]:
        return {one: self._spelled(one) for needs in self.patterns for one in needs}

    def _spelled(self, need: Need) -> _Words:
        direct, makers = _table_words(need)
        for local, qualified in self.module.names.qualified.items():
            if qualified in direct:
                direct = direct | {local}
            if qualified in makers:
                makers = makers | {local}
        return _Words(_last(direct), _last(makers))

    def _union(self, functions: Iterable[Function]) -> frozenset[bytes]:
        """Words of the functions, and of those of the package's other files that they may call."""
        words = frozenset[bytes]().union(*(self._of(one) for one in functions))
        return words.union(*(self._followed(word) for word in words & self._importable))

    def _followed(self, word: bytes) -> frozenset[bytes]:
        found = self._elsewhere.get(word)
        if found is None:
            other = self.module.imported(self.module.names.qualified[word.decode()])
            found = self._elsewhere[word] = self._words_elsewhere(*other) if other is not None else frozenset()
        return found

    def _words_elsewhere(self, module: Module, definition: ast.ClassDef | Function) -> frozenset[bytes]:
        """Words of a function of another file, and of the functions that it may call; a class is not followed."""
        words: dict[ast.AST, frozenset[bytes]] = {}
        pending = [(module, definition)]
        while pending:
            home, one = pending.pop()
            if one in words or isinstance(one, ast.ClassDef):
                continue
            words[one] = home.words(one)
            for name in (word.decode() for word in words[one]):
                if name in home.names.definitions:
                    pending.append((home, home.names.definitions[name]))
                elif name in home.names.qualified:
                    pending += filter(None, [self.module.imported(home.names.qualified[name])])
        return frozenset().union(*words.values())

    @cached_property
    def _importable(self) -> frozenset[bytes]:
        """Local names of functions that the file imports from its package."""
        own, qualified = self.module.around.own, self.module.names.qualified.items()
        return frozenset(name.encode() for name, full in qualified if not is_class_name(full) and own(full))

    def _of(self, function: Function) -> frozenset[bytes]:
        found = self._words.get(function)
        if found is None:
            found = self._words[function] = _words_of(self.module.source, function)
        return found

    def _reach(self, functions: Iterable[Function], cls: ast.ClassDef | None) -> tuple[Function, ...]:
        """The functions, and those of the file that they may call, directly or not."""
        methods = self._methods(cls) if cls is not None else {}
        found: dict[Function, None] = {}
        pending = list(functions)
        while pending:
            one = pending.pop()
            if one in found:
                continue
            found[one] = None
            for word in self._of(one) & self._callable:
                name = word.decode()
                pending += [known[name] for known in (methods, self._functions) if name in known]
        return tuple(found)

    def _methods(self, cls: ast.ClassDef) -> dict[str, Function]:
        """Methods of a class and its bases in this file."""
        found = self._own.get(cls.name)
        if found is None:
            everything = self.module.all_methods(cls).items()
            found = self._own[cls.name] = {n: one for n, one in everything if self.module.owner(one) is self.module}
        return found

    @cached_property
    def _functions(self) -> dict[str, Function]:
        definitions = self.module.names.definitions.items()
        return {name: one for name, one in definitions if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}

    @cached_property
    def _callable(self) -> frozenset[bytes]:
        """Names of all functions and methods of the file."""
        methods = (name for cls in self.module.classes.values() for name in self.module.methods(cls))
        return frozenset(name.encode() for name in (*self._functions, *methods))


@functools.cache
def _table_words(need: Need) -> tuple[frozenset[str], frozenset[str]]:
    """Qualified names of a need's operation, and of the layer types and tables that make a layer computing it."""
    if need.op == "class":
        return frozenset(), frozenset()
    if need.op == "call":
        layer = table().layer(need.name) is not None
        return frozenset({need.name}), frozenset({need.name}) if layer else frozenset()
    direct = {name for name, op in (*table().spellings.items(), *LIBRARY_OPS.items()) if op == need.op}
    if need.op == "to":
        direct |= {*CASTS, "type", "type_as", "to"}
    makers = set(table().layers_computing(need.op))
    if any(computes(one) == need.op for one in ACTIVATIONS.values()):
        makers |= ACTIVATION_TABLES
    return frozenset(direct), frozenset(makers)


def _last(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(name.rpartition(".")[2].encode() for name in names)


def _words_of(source: SourceFile, function: Function) -> frozenset[bytes]:
    """Every word of a function's body, its docstring left out, and the names that its parameters have for defaults."""
    body = function.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(body) > 1:
        first = body[1]
    start, end = source.line_starts[first.lineno - 1], source.line_starts[function.end_lineno or function.lineno]
    text = source.text[start:end]
    if not text.isascii():  # Python normalises identifiers
        text = unicodedata.normalize("NFKC", text.decode()).encode()
    named = (one for _, one in defaults(function.args) if isinstance(one, ast.Name | ast.Attribute))
    words = [(one.id if isinstance(one, ast.Name) else one.attr).encode() for one in named]
    return frozenset(words).union(text.translate(_SPACED).split())


@dataclass(frozen=True, slots=True)
class _Calls:
    """Names and attributes (with a dot before them) that a function binds, and those that it calls.

    other  it calls something that is neither
    """

    bound: frozenset[str]
    called: frozenset[str]
    other: bool


def _calls_of(function: Function) -> _Calls:
    bound: set[str] = set()
    called: set[str] = set()
    other = False
    for node in walk(function):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                called.add(f".{node.func.attr}")
            elif isinstance(node.func, ast.Name):
                called.add(node.func.id)
            else:
                other = True
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound.add(f".{node.attr}")
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return _Calls(frozenset(bound), frozenset(called), other)
