"""The scopes of the functions of a file: what their names mean, and which functions are inlined in
them."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from regraft.structure.bound_names import class_variables
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.optable import table
from regraft.structure.package import is_class_name
from regraft.structure.replaced_operations import Replacements

if TYPE_CHECKING:
    from regraft.structure.module_structures import Module

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ATTRIBUTE_STORE = re.compile(rb"\.(\w+)\s*=(?!=)|\bsetattr\([^,\n]*,\s*[\"'](\w+)")


class ModuleScopes:
    """The scopes of the functions of a file, and of those that it inlines from other files.

    inlinable: whether a function of the file can be inlined, as far as that was asked.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.inlinable: dict[ast.AST, bool] = {}
        self._scopes_of_others: dict[Module, Scope] = {}

    def of(self, cls: ast.ClassDef | None) -> Scope:
        """Return the scope of the methods of a class, or of the functions outside classes
        (None)."""
        return self._outside_classes() if cls is None else self._of_class(cls)

    def _outside_classes(self) -> Scope:
        """Return the scope of the functions outside classes."""
        module = self.module
        return Scope(
            module.source,
            module.names,
            table(),
            {},
            custom_operations=module.custom_operations,
            inlines=module.inlines,
            inlinable=self.inlinable,
            imported=self._imported_function,
            returned=module.class_layers.returned_layers,
            late_attributes=module.attribute_stores.names,
            replacements=module.replacements,
        )

    def _of_class(self, cls: ast.ClassDef) -> Scope:
        """Return the scope of the methods of a class."""
        module = self.module
        methods = module.all_methods(cls)
        subclasses = module.subclasses.get(cls.name, ())
        overridden = {name for subclass in subclasses for name in module.methods(subclass)}
        owners = [module.owner(base) for base in module.bases(cls)]
        return Scope(
            module.source,
            module.names,
            table(),
            module.layers(cls),
            methods,
            module.custom_operations.union(*(owner.custom_operations for owner in owners)),
            frozenset(name for name in methods.keys() - overridden if self._is_final(cls, name)),
            module.inlines,
            self.inlinable,
            self._imported_function,
            module.class_layers.returned_layers,
            late_attributes=module.attribute_stores.names.union(
                *(owner.attribute_stores.names for owner in owners)
            ),
            replacements=module.replacements,
        )

    def _imported_function(self, qualified: str) -> tuple[Scope, Function] | None:
        """Return the scope and the definition of an imported function; None unless the package
        defines it."""
        if is_class_name(qualified):
            return None
        home, function = self.module.imported(qualified) or (self.module, None)
        if function is None or isinstance(function, ast.ClassDef):
            return None
        if home not in self._scopes_of_others:
            self._scopes_of_others[home] = self._scope_of(home)
        return self._scopes_of_others[home], function

    def _scope_of(self, home: Module) -> Scope:
        """Return the scope of the functions of another module, which this one inlines."""
        return Scope(
            home.source,
            home.names,
            table(),
            {},
            custom_operations=home.custom_operations,
            inlines=self.module.inlines,
            inlinable=home.scopes.inlinable,
            imported=self._imported_function,
            home=home.dotted,
            late_attributes=home.attribute_stores.names,
            replacements=self._replacements_with(home),
        )

    def _replacements_with(self, home: Module) -> Replacements | None:
        """Return the replacements of this file and of another one, whose function is inlined."""
        if home.replacements is None:
            return self.module.replacements
        other = home.replacements.in_file(Path(home.source.path).name)
        return other if self.module.replacements is None else self.module.replacements.merged(other)

    def _is_final(self, cls: ast.ClassDef, name: str) -> bool:
        """Return whether `self.name` is certainly a method found in this file, one that nothing
        overwrites."""
        if name in self._attributes_set_anywhere:
            return False
        owner = cls
        while name not in self.module.methods(owner):
            base = self._only_base(owner)
            if base is None or name in class_variables(owner):
                return False
            owner = base
        functions = [statement for statement in owner.body if isinstance(statement, _FUNCTIONS)]
        is_redefined = sum(function.name == name for function in functions) > 1
        return not is_redefined and name not in class_variables(owner)

    def _only_base(self, cls: ast.ClassDef) -> ast.ClassDef | None:
        """Return the base class of a class that has one base, which this file defines under its
        plain name; None for any other class."""
        base = cls.bases[0] if len(cls.bases) == 1 else None
        return self.module.classes.get(base.id) if isinstance(base, ast.Name) else None

    @cached_property
    def _attributes_set_anywhere(self) -> frozenset[str]:
        """The names of all attributes that the file sets, on whatever object."""
        return frozenset(
            name.decode()
            for match in _ATTRIBUTE_STORE.finditer(self.module.source.text)
            for name in match.groups()
            if name
        )
