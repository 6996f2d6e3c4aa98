"""The surroundings of a function that is lowered: its file, the names of the module, its class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from regraft.source.qualified_names import Names
from regraft.source.text import SourceFile
from regraft.structure.optable import OpTable
from regraft.structure.replaced_operations import Replacements
from regraft.structure.values_and_nodes import Layer

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Scope:
    """The surroundings of a function besides its own names: the file, the module's names, and its
    class.

    layers             the layers of the class by path
    methods            the methods of the class and its bases by name, as an instance has them
    custom_operations  names of properties, `__iter__` and `__add__`, where the file defines them:
                       they run any code
    final              the methods that no class of the file overrides
    inlines            calls of the file's functions are inlined
    inlinable          cache of which functions can be inlined
    imported           returns a function of another file of the package and its scope; None for
                       any other name
    returned           returns the layers that a function of the file may return if its text names a
                       `Sequential`; () for any other function
    home               the qualified name of that other file's module when the scope is one of its
                       functions, else ""
    late_attributes    names of attributes that the file assigns on objects in local variables
    replacements       the functions and classes that the file replaces; None for nearly every file
    """

    source: SourceFile
    names: Names
    table: OpTable
    layers: Mapping[str, tuple[Layer, ...]]
    methods: Mapping[str, Function] = field(default_factory=dict)
    custom_operations: frozenset[str] = frozenset()
    final: frozenset[str] = frozenset()
    inlines: bool = False
    inlinable: dict[ast.AST, bool] = field(default_factory=dict)
    imported: Callable[[str], tuple[Scope, Function] | None] = lambda qualified: None
    returned: Callable[[Function], tuple[Layer, ...]] = lambda function: ()
    home: str = ""
    late_attributes: frozenset[str] = frozenset()
    replacements: Replacements | None = None
