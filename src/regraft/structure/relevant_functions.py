"""Selection of the functions worth lowering: those whose text may contain every operation that some
pattern needs.

The selection is by the words of the text, so it may be too large, never too small. An operation
gets into a function in one of three ways, each of which leaves a word in the function's text or in
the text of a function it may inline:

* by a name of the operation: `F.softmax`, `x.softmax`, a local name that the file imports it under;
* by a call of an attribute whose layers (or functions, or choices of the configuration) may compute
  it;
* by a call of a value that the function itself builds: `nn.GELU()(x)`, `act = ACT2FN[name];
  act(x)`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from regraft.structure.called_layers import computed_op
from regraft.structure.containers import COUNTING_FUNCTIONS, NUMBERED_STEP
from regraft.structure.function_surroundings import Function
from regraft.structure.last_dimension import SPELLINGS
from regraft.structure.library_activations import ACTIVATION_TABLES, ACTIVATIONS, LIBRARY_OPS
from regraft.structure.module_structures import Module
from regraft.structure.operations import CAST_OPS, OPERATOR_OPS
from regraft.structure.optable import table
from regraft.structure.package import is_class_name
from regraft.structure.rms_norm_recognition import is_rms_norm
from regraft.structure.values_and_nodes import Layer
from regraft.structure.words_and_calls import Calls, find_calls, read_words

_ANYWHERE = OPERATOR_OPS | {f"{op}_" for op in OPERATOR_OPS}  # operators leave no word


@dataclass(frozen=True, slots=True)
class Need:
    """One node without which a pattern cannot match.

    op      canonical operation; `call` for a call of the function or layer `name`; `class` for a
            call of a layer whose class in the package is the norm `name`
    chosen  a layer whose type is only known at run time may meet the need
    """

    op: str
    name: str = ""
    chosen: bool = False


Needs = frozenset[Need]


@dataclass(frozen=True, slots=True)
class _Words:
    """Words that indicate a need.

    direct  the names of the operation
    makers  the names of the layer types and tables that build a layer which computes the operation
    """

    direct: frozenset[bytes]
    makers: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class _Contents:
    """The modules that an attribute may be, with those inside them: their operations and types,
    whether a configuration chooses the type of one, and whether one is an RMSNorm of the package.
    """

    ops: frozenset[str | None]
    types: frozenset[str]
    is_chosen: bool
    is_norm: bool

    def meets(self, need: Need) -> bool:
        """Return whether one of the modules may meet a need."""
        if self.is_chosen and need.chosen:
            return True
        if need.op == "call":
            return need.name in self.types
        return self.is_norm if need.op == "class" else need.op in self.ops


class Relevance:
    """A test of the functions of one module for whether any of the patterns may match in them."""

    def __init__(self, module: Module, patterns: Collection[Needs]) -> None:
        self.module = module
        self.patterns = tuple(
            frozenset(need for need in needs if need.op not in _ANYWHERE) for needs in patterns
        )
        self._words_by_function: dict[ast.AST, frozenset[bytes]] = {}
        self._methods_by_class: dict[str, dict[str, Function]] = {}
        self._words_by_import: dict[bytes, frozenset[bytes]] = {}
        self._calls_by_function: dict[ast.AST, Calls] = {}
        self._attributes_by_class: dict[str, dict[Need, frozenset[bytes]] | None] = {}
        self._needs_by_contents: dict[_Contents, tuple[Need, ...]] = {}

    def may_match(self, cls: ast.ClassDef | None, function: Function) -> bool:
        """Return whether a pattern may match in a function of a class, or outside classes (`cls` is
        None)."""
        if not all(self.patterns):
            return True  # a pattern of nothing but operators
        attributes = self._attributes(cls) if cls is not None else {}
        if attributes is None:
            return False
        reached = self._reachable_functions([function], cls)
        words = self._all_words(reached)
        certain, built = set(), set()
        for need, need_words in self._vocabulary.items():
            if not words.isdisjoint(need_words.direct) or not words.isdisjoint(
                attributes.get(need, ())
            ):
                certain.add(need)
            elif need.chosen or not words.isdisjoint(need_words.makers):
                built.add(need)
        if any(needs <= certain for needs in self.patterns):
            return True
        return any(
            needs <= certain | built for needs in self.patterns
        ) and self._may_call_built_value(reached)

    def _may_call_built_value(self, functions: Iterable[Function]) -> bool:
        """Return whether the functions may call a module or function that they build, choose or
        receive.

        The callee is then a local name, an attribute that the functions store, or neither a name
        nor an attribute.
        """
        bound: set[str] = set()
        called: set[str] = set()
        for function in functions:
            calls = self._calls_by_function.get(function)
            if calls is None:
                calls = self._calls_by_function[function] = find_calls(function)
            if calls.calls_other:
                return True
            bound |= calls.bound
            called |= calls.called
        return not bound.isdisjoint(called)

    def _attributes(self, cls: ast.ClassDef) -> dict[Need, frozenset[bytes]] | None:
        """Return the last names of the attributes that may meet each need, without the needs that
        none may meet; None when no pattern fits the class."""
        if cls.name not in self._attributes_by_class:
            self._attributes_by_class[cls.name] = (
                self._find_attributes(cls) if self._class_fits(cls) else None
            )
        return self._attributes_by_class[cls.name]

    def _class_fits(self, cls: ast.ClassDef) -> bool:
        """Return whether the text of a class and its bases contains words of all needs of one
        pattern.

        The text includes the constructors, which build the layers.
        """
        module, bases = self.module, self.module.bases(cls)
        methods = [
            method
            for base in bases
            if module.owner(base) is module
            for method in module.methods(base).values()
        ]
        imported_words = (
            module.owner(base).words(base) for base in bases if module.owner(base) is not module
        )
        words = self._all_words(self._reachable_functions(methods, cls)).union(*imported_words)

        def is_met(need: Need) -> bool:
            """Return whether the text has a word of a need."""
            if need.chosen or need.op == "class":
                return True
            vocabulary = self._vocabulary[need]
            return not words.isdisjoint(vocabulary.direct | vocabulary.makers)

        return any(all(map(is_met, needs)) for needs in self.patterns)

    def _find_attributes(self, cls: ast.ClassDef) -> dict[Need, frozenset[bytes]]:
        """Return the last names of the attributes whose layers may meet each need."""
        names_by_need: dict[Need, set[bytes]] = {}
        for path, alternatives in self.module.layers(cls).items():
            name = path.rpartition(".")[2].encode()
            for need in self._needs_met(self._contents_of(alternatives)):
                names_by_need.setdefault(need, set()).add(name)
        return {need: frozenset(names) for need, names in names_by_need.items()}

    def _needs_met(self, contents: _Contents) -> tuple[Need, ...]:
        """Return the needs that one of the modules of an attribute may meet."""
        needs = self._needs_by_contents.get(contents)
        if needs is None:
            needs = self._needs_by_contents[contents] = tuple(
                filter(contents.meets, self._vocabulary)
            )
        return needs

    def _contents_of(self, alternatives: Iterable[Layer]) -> _Contents:
        """Return the contents of an attribute with these alternatives."""
        ops: set[str | None] = set()
        types: set[str] = set()
        is_chosen = False
        pending = list(alternatives)
        while pending:
            layer = pending.pop()
            is_chosen |= layer.choice
            types.add(layer.type)
            ops.add(computed_op(layer.type))
            pending += [module for modules in layer.items for module in modules]
        asks_for_norms = any(need.op == "class" for need in self._vocabulary)
        is_norm = asks_for_norms and any(
            is_rms_norm(self.module, layer_type) for layer_type in types
        )
        return _Contents(frozenset(ops), frozenset(types), is_chosen, is_norm)

    # words

    @cached_property
    def _vocabulary(self) -> dict[Need, _Words]:
        """The words that indicate each need of the patterns."""
        return {need: self._need_words(need) for needs in self.patterns for need in needs}

    def _need_words(self, need: Need) -> _Words:
        """Return the words that indicate a need, with the local names of imports."""
        direct, makers = _table_words(need)
        table_words = _words_in_table(need)
        imported = self._locals_by_name
        return _Words(
            table_words.direct.union(*(imported[name] for name in direct & imported.keys())),
            table_words.makers.union(*(imported[name] for name in makers & imported.keys())),
        )

    @cached_property
    def _locals_by_name(self) -> dict[str, list[bytes]]:
        """The names under which the file has each qualified name."""
        locals_by_name: dict[str, list[bytes]] = {}
        for local, qualified in self.module.names.qualified.items():
            name = local.rpartition(".")[2].encode()
            locals_by_name.setdefault(qualified, []).append(name)
        return locals_by_name

    def _all_words(self, functions: Iterable[Function]) -> frozenset[bytes]:
        """Return the words of the functions, and of the functions of other files of the package
        that they may call."""
        words = frozenset[bytes]().union(
            *(self._function_words(function) for function in functions)
        )
        return words.union(*(self._imported_words(word) for word in words & self._importable))

    def _imported_words(self, word: bytes) -> frozenset[bytes]:
        """Return the words of an imported function, given its local name; none unless the package
        defines it."""
        words = self._words_by_import.get(word)
        if words is None:
            definition = self.module.imported(self.module.names.qualified[word.decode()])
            words = self._words_by_import[word] = (
                self._collect_imported_words(*definition) if definition is not None else frozenset()
            )
        return words

    def _collect_imported_words(
        self, module: Module, definition: ast.ClassDef | Function
    ) -> frozenset[bytes]:
        """Return the words of a function of another file and the functions that it may call; a
        class has none."""
        words: dict[ast.AST, frozenset[bytes]] = {}
        pending = [(module, definition)]
        while pending:
            home, current = pending.pop()
            if current in words or isinstance(current, ast.ClassDef):
                continue
            words[current] = home.words(current)
            for name in (word.decode() for word in words[current]):
                if name in home.names.definitions:
                    pending.append((home, home.names.definitions[name]))
                elif name in home.names.qualified and not is_class_name(home.names.qualified[name]):
                    pending += filter(None, [self.module.imported(home.names.qualified[name])])
        return frozenset().union(*words.values())

    @cached_property
    def _importable(self) -> frozenset[bytes]:
        """The local names of functions that the file imports from its package."""
        is_own, qualified = (
            self.module.package_files.may_define,
            self.module.names.qualified.items(),
        )
        return frozenset(
            name.encode()
            for name, qualified_name in qualified
            if not is_class_name(qualified_name) and is_own(qualified_name)
        )

    def _function_words(self, function: Function) -> frozenset[bytes]:
        """Return the words of a function of the file, from the cache if possible."""
        words = self._words_by_function.get(function)
        if words is None:
            words = self._words_by_function[function] = read_words(self.module.source, function)
        return words

    def _reachable_functions(
        self, functions: Iterable[Function], cls: ast.ClassDef | None
    ) -> tuple[Function, ...]:
        """Return the functions and the functions of the file that they may call, directly or
        indirectly."""
        methods = self._methods(cls) if cls is not None else {}
        reached: dict[Function, None] = {}
        pending = list(functions)
        while pending:
            function = pending.pop()
            if function in reached:
                continue
            reached[function] = None
            for word in self._function_words(function) & self._callable_names:
                candidates = methods.get(word.decode()), self._functions.get(word.decode())
                pending += [candidate for candidate in candidates if candidate is not None]
        return tuple(reached)

    def _methods(self, cls: ast.ClassDef) -> dict[str, Function]:
        """Return the methods of a class and its bases that this file defines, by name."""
        methods = self._methods_by_class.get(cls.name)
        if methods is None:
            all_methods = self.module.all_methods(cls).items()
            methods = self._methods_by_class[cls.name] = {
                name: method
                for name, method in all_methods
                if self.module.owner(method) is self.module
            }
        return methods

    @cached_property
    def _functions(self) -> dict[str, Function]:
        """The functions at the top level of the file by name."""
        definitions = self.module.names.definitions.items()
        return {
            name: definition
            for name, definition in definitions
            if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    @cached_property
    def _callable_names(self) -> frozenset[bytes]:
        """The names of all functions and methods of the file."""
        methods = (
            name for cls in self.module.classes.values() for name in self.module.methods(cls)
        )
        return frozenset(name.encode() for name in (*self._functions, *methods))


@functools.cache
def _table_words(need: Need) -> tuple[frozenset[str], frozenset[str]]:
    """Return the qualified names of a need's operation, and of the layer types and tables that
    build its layer."""
    if need.op == "class":
        return frozenset(), frozenset()
    if need.op == NUMBERED_STEP:
        return frozenset(COUNTING_FUNCTIONS), frozenset()
    if need.op == "call":
        is_layer = table().layer(need.name) is not None
        return frozenset({need.name}), frozenset({need.name}) if is_layer else frozenset()
    spellings = _spellings_by_op()
    in_place = spellings.get(f"{need.op}_", frozenset())
    direct = spellings.get(need.op, frozenset()) | in_place
    if need.op == "to":
        direct |= CAST_OPS
    direct |= SPELLINGS.get(need.op, frozenset())
    makers = set(table().layers_computing(need.op))
    if any(computed_op(layer_type) == need.op for layer_type in ACTIVATIONS.values()):
        makers |= ACTIVATION_TABLES
    return direct, frozenset(makers)


@functools.cache
def _words_in_table(need: Need) -> _Words:
    """Return the words that indicate a need in every file."""
    direct, makers = _table_words(need)
    return _Words(_last_parts(direct), _last_parts(makers))


@functools.cache
def _spellings_by_op() -> Mapping[str, frozenset[str]]:
    """Return the qualified names of each operation."""
    names: dict[str, set[str]] = {}
    for name, op in (*table().spellings.items(), *LIBRARY_OPS.items()):
        names.setdefault(op, set()).add(name)
    return {op: frozenset(spellings) for op, spellings in names.items()}


def _last_parts(names: Iterable[str]) -> frozenset[bytes]:
    """Return the last part of each qualified name, encoded."""
    return frozenset(name.rpartition(".")[2].encode() for name in names)
