"""Find the other definitions of a file that decide the behaviour of a changed class: they have to
run as well."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verification.attribute_changes import (
    boolean_attributes,
    may_change_attribute,
    only_sets_flags,
)
from regraft.verification.bound_and_read_names import mentioned_names
from regraft.verification.builder_calls import Construction, constructions_in
from regraft.verification.class_syntax import (
    Definition,
    are_called_by_name_only,
    attributes_read,
    base_names,
    class_body_names,
    inherits_only_from,
    is_constant_alone,
    method_name,
    named_words,
    names_used_when_run,
    reads_annotations,
    target_names,
    used_names,
)

SUBCLASS, BUILDER, MODIFIER = "inherits from it", "builds it", "can modify it"


@dataclass(frozen=True, slots=True)
class Relative:
    """A definition that subclasses, builds or modifies a changed class (`why`, in words), with its
    1-based first and last line.

    `constructions` are the calls with which a builder builds the class, where these calls and the
    inputs are all that it adds; () for a function that only sets flags of the class, None for every
    other relative.
    """

    name: str
    why: str
    first: int
    last: int
    constructions: tuple[Construction, ...] | None = None

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Relative:
        """Return the relative from its JSON object, as written from `dataclasses.asdict`."""
        constructions = entry["constructions"]
        if constructions is not None:
            constructions = tuple(
                tuple((name, constant) for name, constant in construction)
                for construction in constructions
            )
        return cls(**{**entry, "constructions": constructions})


class Family:
    """The definitions of one file and the references between them, by name, also through functions
    and variables."""

    def __init__(self, tree: ast.Module, definitions: Mapping[str, Definition]) -> None:
        """Collect the names and attributes that each definition, and each variable at the top
        level, refers to."""
        self._nodes = definitions
        self._names: dict[str, set[str]] = {}
        self._names_when_run: dict[str, set[str]] = {}  # without annotations
        names_of = used_names if reads_annotations(tree) else names_used_when_run
        for name, node in definitions.items():
            self._names.setdefault(_plain_name(name), set()).update(used_names(node))
            self._names_when_run.setdefault(_plain_name(name), set()).update(names_of(node))
        self._attributes = {
            name: frozenset(attributes_read(node)) for name, node in definitions.items()
        }
        for statement in tree.body:
            for target in target_names(statement):
                for references in (self._names, self._names_when_run):
                    references.setdefault(target, set()).update(mentioned_names(statement))
        self._classes = {
            _plain_name(name)
            for name, node in definitions.items()
            if isinstance(node, ast.ClassDef)
        }

    def relatives(
        self, changed: str, mentioned: frozenset[str], edited: frozenset[str] | None = None
    ) -> tuple[Relative, ...]:
        """Return the relatives of a changed class in the order of the file: subclasses that may run
        its edited methods (SUBCLASS), definitions that build it or these (BUILDER), and others that
        may modify an instance (MODIFIER); `mentioned` are the attributes that its two versions
        mention.

        `edited` are the methods that the change is in, None where the change is also outside of
        methods.
        """
        cls = _plain_name(changed)
        subclasses = self._subclasses({cls})
        inheriting = self._inheriting(changed, subclasses, edited)
        builders, redefining = self._builders(cls, subclasses, {cls} | inheriting)
        results = []
        for name, node in self._nodes.items():
            own_name = _plain_name(name)
            if own_name == cls or self._never_refers(node, cls, own_name):
                continue
            if own_name in subclasses:
                if own_name in inheriting:
                    results.append(_relative(name, SUBCLASS, node))
            elif own_name in builders:
                constructions = None
                if not self._may_modify(own_name, node, mentioned) and own_name not in redefining:
                    constructions = self._constructions(cls, own_name, node, inheriting)
                results.append(_relative(name, BUILDER, node, constructions))
            elif self._may_modify(own_name, node, mentioned):
                constructions = () if self._only_sets_flags(own_name, node, cls) else None
                results.append(_relative(name, MODIFIER, node, constructions))
        return tuple(results)

    def _builders(
        self, cls: str, subclasses: set[str], built: set[str]
    ) -> tuple[set[str], set[str]]:
        """Return two sets of classes, without `cls` and its subclasses. The first has the builders,
        whose own code refers to a class of `built`, with their subclasses that define a function or
        redefine names; the second only the subclasses that redefine names which they or `cls`
        read."""
        related = subclasses | {cls}
        builders = {
            name for name in self._classes - related if built & self._names_reached_when_run(name)
        }
        heirs = self._subclasses(builders) - related
        redefining = {
            name for name in heirs if self._redefines(name, self._attributes_read_by({cls, name}))
        }
        with_functions = {name for name in heirs if self._defines_functions(name)}
        return builders | redefining | with_functions, redefining

    def _inheriting(
        self, changed: str, subclasses: set[str], edited: frozenset[str] | None
    ) -> set[str]:
        """Return the subclasses of a changed class that may run its edited methods, or build an
        instance of a class that does."""
        cls = _plain_name(changed)
        inheriting = {
            _plain_name(name)
            for name, node in self._nodes.items()
            if _plain_name(name) in subclasses
            and not (edited and self._avoids_edited_methods(node, changed, edited))
        }
        return inheriting | {
            _plain_name(name)
            for name, node in self._nodes.items()
            if _plain_name(name) in subclasses - inheriting
            and isinstance(node, ast.ClassDef)
            and ({cls} | inheriting) & self._closure(set().union(*map(used_names, node.body)))
        }

    def _constructions(
        self, cls: str, own_name: str, builder: Definition, inheriting: set[str]
    ) -> tuple[Construction, ...] | None:
        """Return the calls with which a builder builds the class `cls`; None where it may reach the
        class in another way than by plain calls, builds a subclass that differs from it, or several
        classes have the name. A subclass of a builder that never names the class builds it as its
        base does. `inheriting` are the subclasses that run the edited code."""
        direct_names = self._names_when_run.get(own_name, set())
        targets = {cls} | inheriting
        if targets & self._closure(direct_names - targets - self._classes):
            return None
        constructions: dict[Construction, None] = {}
        for target in sorted(targets & direct_names) or [cls]:
            built = self._as_built(target, cls)
            calls = constructions_in(builder, built) if built is not None else None
            if calls is None:
                return None
            constructions.update(dict.fromkeys(calls))
        return tuple(constructions)

    def _as_built(self, target: str, cls: str) -> ast.ClassDef | None:
        """Return the class `cls` under the name of the class `target`, which is `cls` or a subclass
        that adds nothing to it; None for another subclass, or where several classes have a name."""
        nodes = [node for name, node in self._nodes.items() if _plain_name(name) == target]
        if len(nodes) != 1 or not isinstance(nodes[0], ast.ClassDef):
            return None
        if target == cls:
            return nodes[0]
        adds_nothing = not nodes[0].decorator_list and all(
            isinstance(statement, ast.Pass) or is_constant_alone(statement)
            for statement in nodes[0].body
        )
        base = self._as_built(cls, cls) if inherits_only_from(nodes[0], cls) else None
        if base is None or not adds_nothing:
            return None
        return ast.ClassDef(target, base.bases, base.keywords, base.body, base.decorator_list)

    def _redefines(self, cls: str, attributes: set[str]) -> bool:
        """Return whether a class gives another meaning to one of some attributes or methods in its
        body (`self.x = ...` in methods does not count), or may do so through a decorator, a keyword
        or a further base. False for a class that is not in the file."""
        nodes = [node for name, node in self._nodes.items() if _plain_name(name) == cls]
        return any(
            node.decorator_list
            or node.keywords
            or len(node.bases) > 1
            or not attributes.isdisjoint(class_body_names(node))
            for node in nodes
            if isinstance(node, ast.ClassDef)
        )

    def _attributes_read_by(self, classes: set[str]) -> set[str]:
        """Return the attributes that some classes, their bases in this file and the functions and
        classes that these name read."""
        names = self._closure(classes | self._ancestors(classes))
        return {
            attribute
            for name, node in self._nodes.items()
            if _plain_name(name) in names
            for attribute in self._attributes[name]
        }

    def _ancestors(self, classes: set[str]) -> set[str]:
        """Return the direct and indirect bases in this file of some classes."""
        ancestors: set[str] = set()
        pending = set(classes)
        while pending:
            name = pending.pop()
            for node in (n for key, n in self._nodes.items() if _plain_name(key) == name):
                bases = self._closure(base_names(node)) if isinstance(node, ast.ClassDef) else set()
                pending |= (bases & self._classes) - ancestors
                ancestors |= bases & self._classes
        return ancestors

    def mentioned_attributes(self, changed: str) -> frozenset[str]:
        """Return the names of the attributes (`x.name`) in the text of a class and of its bases in
        this file."""
        pending = [_plain_name(changed)]
        visited: set[str] = set()
        attributes: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in visited:
                visited.add(name)
                for node in (n for key, n in self._nodes.items() if _plain_name(key) == name):
                    attributes.update(
                        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
                    )
                    pending.extend(base_names(node) if isinstance(node, ast.ClassDef) else ())
        return frozenset(attributes)

    def _avoids_edited_methods(
        self, subclass: Definition, changed: str, edited: frozenset[str]
    ) -> bool:
        """Return whether a subclass certainly runs none of the edited methods of the class
        `changed`.

        The subclass has to name no edited method, and to override each of them but for private
        ones of a class right below `nn.Module`, which no inherited part may name. The answer is
        False for a class with further bases, where the subclass or an inherited part names the
        class `changed`, and where `changed` is no class.
        """
        parent = self._nodes[changed]
        cls = _plain_name(changed)
        if not inherits_only_from(subclass, cls) or not isinstance(parent, ast.ClassDef):
            return False
        assert isinstance(subclass, ast.ClassDef)
        own_methods = {method_name(node) for node in subclass.body}
        inherited_edits = edited - own_methods
        if inherited_edits and not are_called_by_name_only(inherited_edits, parent):
            return False
        own_parts = (*subclass.body, *subclass.decorator_list)
        mentioned_words = {word for node in own_parts for word in named_words(node)}
        overridden_methods = own_methods - mentioned_words
        inherited_parts = [
            part for part in parent.body if method_name(part) not in edited | overridden_methods
        ]
        if any(cls in mentioned_names(node) for node in (*subclass.body, *inherited_parts)):
            return False
        if inherited_edits:
            mentioned_words.update(*map(named_words, inherited_parts))
        return not edited & mentioned_words

    def _never_refers(self, node: Definition, cls: str, own_name: str) -> bool:
        """Return whether a definition mentions a class neither itself nor through other definitions
        and variables."""
        return cls not in self._reachable_names(own_name, through_classes=True)

    def _defines_functions(self, cls: str) -> bool:
        """Return whether a class defines a function at any depth."""
        nodes = (node for name, node in self._nodes.items() if _plain_name(name) == cls)
        return any(
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in nodes
            for child in ast.walk(node)
        )

    def _subclasses(self, parents: set[str]) -> set[str]:
        """Return the direct and indirect subclasses of some classes, without these; a base may be
        written through variables and functions."""
        subclasses: set[str] = set()
        while True:
            family = parents | subclasses
            next_subclasses = {
                _plain_name(name)
                for name, node in self._nodes.items()
                if isinstance(node, ast.ClassDef) and family & self._closure(base_names(node))
            }
            if next_subclasses <= family:
                return subclasses
            subclasses |= next_subclasses - parents

    def _reachable_names(self, name: str, *, through_classes: bool) -> set[str]:
        """Return the names that a definition or variable refers to, also through other definitions
        (classes only with `through_classes`) and variables."""
        return self._closure(self._names.get(name, set()), through_classes=through_classes)

    def _names_reached_when_run(self, name: str) -> set[str]:
        """Return the names that a definition refers to outside of annotations, also through
        functions and variables."""
        references = self._names_when_run
        return self._closure(references.get(name, set()), references=references)

    def _closure(
        self,
        names: Iterable[str],
        *,
        through_classes: bool = False,
        references: Mapping[str, set[str]] | None = None,
    ) -> set[str]:
        """Return `names` and all names that they refer to, directly or not, by `references`, which
        are all of the file for None; classes are followed only with `through_classes`."""
        references = self._names if references is None else references
        reached: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                if through_classes or name not in self._classes:
                    pending.extend(references.get(name, ()))
        return reached

    def _may_modify(self, own_name: str, node: Definition, mentioned: frozenset[str]) -> bool:
        """Return whether a definition or a function that it uses may change a mentioned attribute
        of another object, or defines a class inside a function.
        """
        reachable = self._reachable_names(own_name, through_classes=False)
        helpers = [
            helper
            for name, helper in self._nodes.items()
            if _plain_name(name) in reachable and not isinstance(helper, ast.ClassDef)
        ]
        defines_class = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            isinstance(child, ast.ClassDef) for child in ast.walk(node)
        )
        return defines_class or any(
            may_change_attribute(code, mentioned) for code in (node, *helpers)
        )

    def _only_sets_flags(self, own_name: str, node: Definition, cls: str) -> bool:
        """Return whether a definition is the only function of its name, and only sets attributes
        that the body of the only class `cls` gives a boolean."""
        functions, classes = (
            [entry for name, entry in self._nodes.items() if _plain_name(name) == plain_name]
            for plain_name in (own_name, cls)
        )
        return (
            isinstance(node, ast.FunctionDef)
            and len(functions) == len(classes) == 1
            and isinstance(classes[0], ast.ClassDef)
            and only_sets_flags(node, cls, boolean_attributes(classes[0]))
        )


def _plain_name(name: str) -> str:
    """Return the name of a definition in the source: `f` for `f#2`."""
    return name.partition("#")[0]


def _relative(
    name: str,
    why: str,
    node: Definition,
    constructions: tuple[Construction, ...] | None = None,
) -> Relative:
    """Return the relative for a definition, with the lines that it spans."""
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    last = node.end_lineno or node.lineno
    return Relative(_plain_name(name), why, first, last, constructions)
