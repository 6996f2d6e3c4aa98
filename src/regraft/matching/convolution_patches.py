"""The condition of rules on tensors that the source divides into image patches of the size of a
convolution's kernel."""

from __future__ import annotations

from regraft.structure.values_and_nodes import MISSING, Layer, Structure, Value

_CASTS = frozenset({"to", "type", "type_as", "float", "contiguous"})
_SHAPES = {"view": "size", "reshape": "shape"}
_KERNEL_DIMENSIONS = {
    "torch.nn.Conv1d": 1,
    "torch.nn.Conv2d": 2,
    "torch.nn.Conv3d": 3,
}


def is_of_patches(value: Value, layers: tuple[Layer, ...], structure: Structure) -> bool:
    """Return whether a tensor is, apart from casts, the result of `view` or `reshape` with sizes of
    which those from the third on are written as the kernel sizes of each of the convolutions."""
    sizes = _sizes(value)
    return (
        sizes is not None
        and bool(layers)
        and all(_is_kernel_size(sizes[2:], layer, structure) for layer in layers)
    )


def _sizes(value: Value) -> tuple[Value, ...] | None:
    """Return the sizes that the source gives a tensor before it is cast; None where it does not
    write them out."""
    node = value.node
    while node is not None and node.op in _CASTS:
        node = node.args["input"].node
    if node is None or node.op not in _SHAPES:
        return None
    shape = node.args.get(_SHAPES[node.op])
    return None if shape is None else shape.items


def _is_kernel_size(sizes: tuple[Value, ...], layer: Layer, structure: Structure) -> bool:
    """Return whether sizes are written as the kernel size of a convolution: the same constants or
    attributes, as many as it has dimensions."""
    kernel_size = layer.args.get("kernel_size")
    dimensions = _KERNEL_DIMENSIONS.get(layer.type)
    if kernel_size is None or dimensions != len(sizes):
        return False
    sides = kernel_size.items
    if sides is None:
        sides = (kernel_size,) * len(sizes)
    return len(sides) == len(sizes) and all(
        _are_equal(size, side, structure) for size, side in zip(sizes, sides, strict=True)
    )


def _are_equal(size: Value, side: Value, structure: Structure) -> bool:
    """Return whether a size in a method is the same constant, attribute or stored argument as the
    side of a kernel in the constructor."""
    if size.const is not MISSING or side.const is not MISSING:
        return size.const is not MISSING and size.const == side.const
    if size.origin != "path":
        return False
    stored = [layer.args.get("value") for layer in structure.layers.get(size.name, ())]
    if side.origin == "path" and side.name == size.name:
        return len(stored) <= 1
    return len(stored) == 1 and (
        stored[0] is side or (stored[0] is not None and stored[0].key() == side.key())
    )
