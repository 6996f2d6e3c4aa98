"""What the source of a file reads of its configurations."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from regraft.verification.child.drivers.field_tables import CONFIG_PARAMETERS
from regraft.verification.names_and_scopes import name_of

_FEWEST = 2  # attributes that are read of a parameter whose name tells nothing


@dataclass(slots=True)
class Reads:
    """The attributes that are read of a name, each with those that are read of the attribute.

    `defaults` are those of `getattr`; `is_called` tells that a method of it is called, or it
    itself.
    """

    attributes: dict[str, Reads] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    is_called: bool = False

    @property
    def is_flat(self) -> bool:
        """Return whether nothing is called, and of the attributes that are read no attributes
        are."""
        return not self.is_called and not any(
            reads.attributes or reads.is_called for reads in self.attributes.values()
        )

    def merge(self, other: Reads) -> None:
        """Add the reads of another name to these, in place."""
        self.defaults.update(other.defaults)
        for name, reads in other.attributes.items():
            self.attributes.setdefault(name, Reads()).merge(reads)
        self.is_called |= other.is_called


def config_names(source: str) -> frozenset[str]:
    """Return the names of parameters and attributes that hold configurations in a source text;
    "config" is always among them."""
    return reads_of_configs(source)[0]


@functools.cache
def reads_of_configs(source: str) -> tuple[frozenset[str], Reads]:
    """Return the names of parameters and attributes that hold configurations in a source text, and
    all attributes that are read of them together. Cached."""
    tree = ast.parse(source)
    called_names = _called_names(tree)
    reads_by_name: dict[str, Reads] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for name, reads in _reads_of_parameters(function, called_names):
                reads_by_name.setdefault(name, Reads()).merge(reads)
    reads_by_name.update({name: Reads() for name in ("config",) if name not in reads_by_name})
    all_reads = Reads()
    for name, reads in reads_of_names(tree, frozenset(reads_by_name)).items():
        all_reads.merge(reads)
        reads_by_name[name].merge(reads)
    return frozenset(reads_by_name), all_reads


def _called_names(tree: ast.Module) -> frozenset[str]:
    """Return the names of functions and methods that a file calls."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return frozenset(name_of(call.func) for call in calls)


def _reads_of_parameters(
    function: ast.FunctionDef, called_names: frozenset[str]
) -> Iterator[tuple[str, Reads]]:
    """Yield the parameters of a function that hold a configuration, with what is read of them.

    Their name is a usual one; or they have no annotation and no default, a constructor reads
    several attributes of them, and nothing of the name is called. A parameter that the function
    calculates with is none, whatever its name.
    """
    arguments = function.args
    with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    plain_names = {
        argument.arg
        for argument in arguments.args
        if function.name == "__init__"
        and argument.annotation is None
        and argument not in with_default
        and argument.arg not in called_names
    }
    names = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    names -= {"self", "cls", *_operands(function)}
    for name, reads in reads_of_names(function, frozenset(names)).items():
        is_plain = name in plain_names and reads.is_flat and len(reads.attributes) >= _FEWEST
        if reads.attributes and (name in CONFIG_PARAMETERS or is_plain):
            yield name, reads


def _operands(function: ast.FunctionDef) -> set[str]:
    """Return the names of variables that a function adds, multiplies or raises to a power."""
    return {
        side.id
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)  # of dictionaries
        for side in (node.left, node.right)
        if isinstance(side, ast.Name)
    }


def reads_of_names(tree: ast.AST, names: frozenset[str]) -> dict[str, Reads]:
    """Return, by name, what a tree reads of each of the names, as variables (`config.size`) and as
    attributes of `self` (`self.config.size`): the paths of attributes (`config.text.size`), whether
    the name itself is called (as a variable only), and the constant defaults of `getattr` with
    three arguments. Names without any of these are missing."""
    reads_by_name: dict[str, Reads] = {}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Load()):
                name, path = _path_of(node)
                if name in names and path:
                    reads = reads_by_name.setdefault(name, Reads())
                    _add_path(reads, path, id(node) in called)
            case ast.Call(func=ast.Name(function)) if function in names:
                reads_by_name.setdefault(function, Reads()).is_called = True
            case ast.Call(
                func=ast.Name("getattr"), args=[owner, ast.Constant(str(attribute)), default]
            ):
                name = name_of(owner)
                if name in names and isinstance(default, ast.Constant):
                    reads = reads_by_name.setdefault(name, Reads())
                    reads.defaults[attribute] = default.value
    return reads_by_name


def _path_of(node: ast.expr) -> tuple[str, tuple[str, ...]]:
    """Return the variable at the beginning of a chain of attributes, or the attribute of `self`
    there, and the names after it; ("", ()) for other expressions."""
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "", ()
    return (path[0], tuple(path[1:])) if node.id == "self" and path else (node.id, tuple(path))


def _add_path(reads: Reads, path: tuple[str, ...], is_called: bool) -> None:
    """Add a chain of attributes to what is read of a name; of a chain that is called, the last is a
    method."""
    for name in path[:-1] if is_called else path:
        reads = reads.attributes.setdefault(name, Reads())
    reads.is_called |= is_called
