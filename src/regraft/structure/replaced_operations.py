"""The operations and layers that are not PyTorch's own in a file, because the file replaces them:
`F.gelu = mine`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from regraft.structure.library_activations import ACTIVATIONS, LIBRARY_OPS
from regraft.structure.optable import table
from regraft.structure.values_and_nodes import Node, Replacement

_TENSOR = "torch.Tensor."
_LAYERS = "torch.nn."
_LAYER_FILES = "torch.nn.modules."
_BASE_CLASS = "torch.nn.Module"
_SEQUENTIAL = "torch.nn.Sequential"
# Special methods of tensors whose operation has another name.
_OPERATORS = {"truediv": "div", "getitem": "py.item", "setitem": "py.setitem"}
# Special attributes that no call of a layer reads.
_SHOWN = frozenset({"__repr__", "__str__", "__doc__"})


@dataclass(frozen=True, slots=True)
class Replacements:
    """The names that a file replaces.

    names    by qualified name
    ops      by canonical operation that a name computes
    classes  by qualified name of a class of layers whose calls run the name, a method
    """

    names: Mapping[str, Replacement]
    ops: Mapping[str, Replacement]
    classes: Mapping[str, Replacement]

    @classmethod
    def of(cls, lines: Mapping[str, int]) -> Replacements:
        """Return the replacements of the scanned file, given the line of each qualified name."""
        return cls._indexed({name: Replacement(name, line) for name, line in lines.items()})

    @classmethod
    def _indexed(cls, names: Mapping[str, Replacement]) -> Replacements:
        """Return the replacements of names with the operations and classes that depend on them."""
        ops = {op: names[name] for name in names for op in _replaced_ops(name)}
        classes = {name.rpartition(".")[0]: names[name] for name in names if _runs_in_calls(name)}
        public = {_public_name(name): replacement for name, replacement in classes.items()}
        return cls(names, ops, {**classes, **public})

    def in_file(self, file: str) -> Replacements:
        """Return the replacements as those of another file than the scanned one."""
        return self._indexed(
            {name: replace(replacement, file=file) for name, replacement in self.names.items()}
        )

    def merged(self, other: Replacements) -> Replacements:
        """Return these replacements and those of another file."""
        return self._indexed({**other.names, **self.names})

    def of_name(self, qualified: str) -> Replacement | None:
        """Return the replacement of a qualified name or of something around it; None where there is
        none."""
        while qualified:
            if qualified in self.names:
                return self.names[qualified]
            qualified = qualified.rpartition(".")[0]
        return None

    def of_function(self, qualified: str) -> Replacement | None:
        """Return a replacement that a function or method, by its qualified name, may run; None
        where there is none."""
        return self.of_name(qualified) or self.ops.get(_computed_op(qualified))

    def of_node(self, node: Node) -> Replacement | None:
        """Return a replacement that a node may run; None where there is none."""
        replacement = self.ops.get(node.op.removesuffix("_")) or self.of_name(node.spelling)
        if replacement is not None or node.layer is None:
            return replacement
        layers = node.layer.layers
        types = {layer.type for layer in layers if not layer.choice}
        if any(layer.choice for layer in layers):
            types.update(ACTIVATIONS.values())
        if node.member:
            types.add(_SEQUENTIAL)
        return next(filter(None, map(self._of_layer_type, sorted(types))), None)

    def _of_layer_type(self, qualified: str) -> Replacement | None:
        """Return a replacement that the call of a layer of a type runs; None where there is
        none."""
        return (
            self.of_name(qualified)
            or self.ops.get(_computed_op(qualified))
            or self.classes.get(qualified)
            or self.classes.get(_BASE_CLASS)
        )


def _computed_op(qualified: str) -> str:
    """Return the canonical operation of a layer type or a function; "" for none."""
    layer_type = table().layer(qualified)
    op = layer_type.op if layer_type is not None else None
    return op or table().canonical_op(qualified) or LIBRARY_OPS.get(qualified, "")


def _replaced_ops(name: str) -> Iterator[str]:
    """Yield the canonical operations that a replaced function, method, or module of functions
    computes."""
    for spelling, op in table().spellings.items():
        if spelling == name or spelling.startswith(f"{name}."):
            yield op
    if name.startswith(f"{_TENSOR}__"):
        yield from _operator_ops(name.removeprefix(_TENSOR).strip("_"))


def _operator_ops(operator: str) -> Iterator[str]:
    """Yield the canonical operations of a special method of tensors without its underscores: `mul`,
    `rmul`, `imul`."""
    for name in (operator, operator.removeprefix("r"), operator.removeprefix("i")):
        op = _OPERATORS.get(name) or table().method(name)
        if op is not None:
            yield op


def _runs_in_calls(name: str) -> bool:
    """Return whether the call of a layer may run a replaced attribute of its class: `forward`, what
    is private, and what the layer computes with.

    Other methods, such as `reset_parameters`, run only where they are called.
    """
    cls, _, attribute = name.rpartition(".")
    layer_type = table().layer(_public_name(cls))
    if attribute.startswith("_"):
        return attribute not in _SHOWN
    return attribute == "forward" or (layer_type is not None and attribute in layer_type.attributes)


def _public_name(cls: str) -> str:
    """Return the name under `torch.nn` of a class that is named by its file
    (`torch.nn.modules.linear.Linear`); a class without one is a base class of layers."""
    if not cls.startswith(_LAYER_FILES):
        return cls
    public = _LAYERS + cls.rpartition(".")[2]
    return public if table().layer(public) is not None else _BASE_CLASS
