"""Activations of other libraries whose meaning is documented: tables from configuration strings to
modules, functions, and the tests that tell when the model runs."""

from __future__ import annotations

import functools

from regraft.structure.optable import table

# Tables from configuration strings to activation modules.
ACTIVATION_TABLES = frozenset({"transformers.activations.ACT2FN"})
# The class of `torch.nn` under each string; other strings give other modules.
ACTIVATIONS = {
    "gelu": "torch.nn.GELU",
    "relu": "torch.nn.ReLU",
    "silu": "torch.nn.SiLU",
    "swish": "torch.nn.SiLU",
    "tanh": "torch.nn.Tanh",
    "sigmoid": "torch.nn.Sigmoid",
    "relu6": "torch.nn.ReLU6",
    "leaky_relu": "torch.nn.LeakyReLU",
}
# Strings that contain the name of an operation and give another function.
NAMESAKES = frozenset({"quick_gelu"})
# Functions of other libraries: the module under "gelu" in transformers' table.
LIBRARY_OPS = {"transformers.activations.gelu": "gelu"}
# Operations whose presence in a layer chosen at run time can be tested there, with the function of
# Regraft that tests it.
RUN_TIME_TESTS = {"gelu": "regraft.ops.is_gelu"}


def may_compute(key: object, op: str) -> bool:
    """Return whether the entry under a key of an activation table may be the operation.

    A string has to contain a name of the operation; any other key may stand for it.
    """
    if not isinstance(key, str):
        return True
    return key not in NAMESAKES and any(name in key for name in activation_names(op))


@functools.cache
def activation_names(op: str) -> tuple[str, ...]:
    """Return the strings under which a table has the operation; its own name where none is
    documented."""
    names = []
    for name, qualified in ACTIVATIONS.items():
        layer_type = table().layer(qualified)
        if layer_type is not None and layer_type.op == op:
            names.append(name)
    return tuple(names) or (op,)
