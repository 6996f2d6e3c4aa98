"""Generate `src/regraft/structure/ops_table.json`: the canonical tensor operations and their
spellings.

Run with the PyTorch whose API the table is to describe:

    python scripts/generate_ops_table.py

For every operation the table lists its signatures (parameter name, keyword-only or not, default),
what it returns, and whether it draws random numbers; for every spelling (`torch.softmax`,
`torch.Tensor.softmax`, `torch.nn.functional.softmax`) the operation it means; for every layer of
`torch.nn` with a functional form, its constructor and the attribute that holds each argument of the
operation. Scanning reads only the JSON.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

OUT = Path(__file__).parent.parent / "src" / "regraft" / "structure" / "ops_table.json"
SPACES = (
    ("torch.nn.functional", F),
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.special", torch.special),
)

# One name for operations that differ in name only; arguments that are renamed with them.
SAME = {
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "bmm": "matmul",
    "negative": "neg",
    "absolute": "abs",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "concat": "cat",
    "concatenate": "cat",
    "clip": "clamp",
    "expit": "sigmoid",
}
# Functions that are another operation than the method of the same name.
DISTINCT = {"torch.nn.functional.unfold": "im2col"}
RENAMED = {
    "self": "input",
    "mat2": "other",
    "tensor2": "other",
    "train": "training",
    "axis0": "dim0",
    "axis1": "dim1",
}

# What a method gives when it is not a tensor.
KINDS = {
    "size": "tuple",
    "dim": "int",
    "ndimension": "int",
    "numel": "int",
    "nelement": "int",
    "item": "scalar",
    "tolist": "tuple",
    "stride": "tuple",
    "is_floating_point": "bool",
    "is_complex": "bool",
    "get_device": "int",
    "data_ptr": "int",
    "element_size": "int",
    "is_contiguous": "bool",
    "equal": "bool",
    "allclose": "bool",
}

# Attributes of layers that hold the arguments of the layer's function, where the names differ or
# cannot be inferred.
LAYER_OPS = {
    "Linear": "linear",
    "Dropout": "dropout",
    "LayerNorm": "layer_norm",
    "RMSNorm": "rms_norm",
    "GroupNorm": "group_norm",
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "GELU": "gelu",
    "ReLU": "relu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Embedding": "embedding",
    "LeakyReLU": "leaky_relu",
    "ELU": "elu",
    "Hardswish": "hardswish",
    "Hardsigmoid": "hardsigmoid",
    "Mish": "mish",
    "Softplus": "softplus",
    "ReLU6": "relu6",
    "Softmin": "softmin",
    "GLU": "glu",
    "Conv1d": "conv1d",
    "Conv2d": "conv2d",
    "Conv3d": "conv3d",
    "ConvTranspose1d": "conv_transpose1d",
    "ConvTranspose2d": "conv_transpose2d",
    "ConvTranspose3d": "conv_transpose3d",
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
    "BatchNorm3d": "batch_norm",
    "AvgPool2d": "avg_pool2d",
    "MaxPool2d": "max_pool2d",
    "AdaptiveAvgPool2d": "adaptive_avg_pool2d",
    "AdaptiveAvgPool1d": "adaptive_avg_pool1d",
    "Dropout2d": "dropout2d",
    "Identity": "identity",
    "Flatten": "flatten",
    "CrossEntropyLoss": "cross_entropy",
    "MultiheadAttention": "multihead_attention",
    "LSTMCell": "layer_of_lstm_cell",
}
# Layers whose call has several arguments: those of `forward`, which are those of the operation.
SEVERAL_ARGUMENTS = {"MultiheadAttention", "LSTMCell"}


def main() -> None:
    ops: dict[str, dict[str, Any]] = {}
    spellings: dict[str, str] = {}
    for space, holder in SPACES:
        for name in sorted(dir(holder)):
            if name.startswith("_") or not _is_operation(space, name, getattr(holder, name)):
                continue
            canonical = DISTINCT.get(f"{space}.{name}", SAME.get(name, name))
            signatures = _signatures(name, getattr(holder, name), space)
            if not signatures:
                continue
            entry = ops.setdefault(canonical, {"signatures": [], "kind": KINDS.get(name, "tensor")})
            entry["signatures"] += [one for one in signatures if one not in entry["signatures"]]
            if _random(name):
                entry["random"] = True
            if variadic := _variadic(name):
                entry["variadic"] = variadic
            spellings[f"{space}.{name}"] = canonical
    # of its many forms the one with two operands
    ops["einsum"] = {
        "signatures": [[["equation", "p"], ["input", "p"], ["other", "p"]]],
        "kind": "tensor",
    }
    ops["identity"] = {"signatures": [[["input", "p"]]], "kind": "tensor"}
    # the function's default is Frobenius' norm, which over one dimension is the method's default
    power, dtype = ["p", "p", 2], ["dtype", "k", None]
    ops["norm"] = {
        "signatures": [
            [["input", "p"], power, ["dim", "p"], ["keepdim", "p", False], dtype],
            [["input", "p"], power, dtype],
        ],
        "kind": "tensor",
    }
    for name, order in (("vector_norm", 2), ("norm", None)):
        options = [["ord", "p", order], ["dim", "p", None], ["keepdim", "p", False], dtype]
        ops[f"linalg_{name}"] = {"signatures": [[["input", "p"], *options]], "kind": "tensor"}
        spellings[f"torch.linalg.{name}"] = f"linalg_{name}"
    for name in sorted(SEVERAL_ARGUMENTS):
        forward = inspect.signature(getattr(torch.nn, name).forward)
        entry = {"signatures": [_python_signature(forward)[1:]], "kind": "tuple"}
        if name == "MultiheadAttention":
            entry["random"] = True
        ops[LAYER_OPS[name]] = entry
    for name, entry in ops.items():
        # the signature with the most parameters first: it takes every call that a shorter one takes
        entry["signatures"].sort(key=len, reverse=True)
        # in place, an operation has the signatures of the other in their order
        original = ops.get(name.removesuffix("_"), entry)["signatures"]
        if sorted(map(str, entry["signatures"])) == sorted(map(str, original)):
            entry["signatures"] = sorted(original, key=len, reverse=True)
        if entry["kind"] == "tensor":
            del entry["kind"]
        del name
    table = {
        "torch": torch.__version__.split("+")[0],
        "ops": ops,
        "spellings": spellings,
        "layers": _layers(ops),
    }
    text = json.dumps(table, sort_keys=True, separators=(",", ":"))
    OUT.write_text(text.replace('},"', '},\n"') + "\n")
    print(
        f"{OUT.name}: {len(ops)} operations, {len(spellings)} spellings, {len(table['layers'])}"
        " layers"
    )


def _is_operation(space: str, name: str, value: object) -> bool:
    if not callable(value) or inspect.isclass(value) or inspect.ismodule(value):
        return False
    if space == "torch":
        return hasattr(torch._C._VariableFunctions, name) or name in (
            "einsum",
            "split",
            "norm",
            "meshgrid",
            "stft",
        )
    return not (
        space == "torch.nn.functional" and name in ("handle_torch_function", "assert_int_or_pair")
    )


def _signatures(name: str, value: object, space: str) -> list[list[list[Any]]]:
    found: list[list[list[Any]]] = []
    if space == "torch.nn.functional":
        try:
            return [_python_signature(inspect.signature(value))]  # type: ignore[arg-type]
        except (TypeError, ValueError):
            pass
    try:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    except RuntimeError:
        schemas = []
    for schema in schemas:
        arguments = schema.arguments
        if (
            not arguments
            or any(argument.is_out for argument in arguments)
            or "out" in schema.overload_name
        ):
            continue
        if space == "torch.Tensor" and arguments[0].name not in ("self", "input"):
            continue
        if "Tensor" not in str(arguments[0].type):
            continue
        one = [_argument(argument) for argument in arguments]
        if one not in found:
            found.append(one)
    if not found and space == "torch.Tensor":
        # a method whose arguments are not described: never matched by argument
        found = [[["input", "p"], ["*", "v"]]]
    return found


def _variadic(name: str) -> str | None:
    """The parameter that takes a sequence of integers, also spelled as several arguments:
    `x.view(2, 3)`."""
    try:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    except RuntimeError:
        return None
    for schema in schemas:
        if (
            len(schema.arguments) > 1
            and str(schema.arguments[1].type) == "List[int]"
            and schema.arguments[0].name == "self"
        ):
            return schema.arguments[1].name
    return None


def _argument(argument: Any) -> list[Any]:
    kind = "k" if argument.kwarg_only else "p"
    name = RENAMED.get(argument.name, argument.name)
    return (
        [name, kind, _plain(argument.default_value)]
        if argument.has_default_value()
        else [name, kind]
    )


def _python_signature(signature: inspect.Signature) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for parameter in signature.parameters.values():
        if parameter.name.startswith("_"):
            continue
        kind = {
            parameter.KEYWORD_ONLY: "k",
            parameter.VAR_POSITIONAL: "v",
            parameter.VAR_KEYWORD: "w",
        }.get(parameter.kind, "p")
        row: list[Any] = [RENAMED.get(parameter.name, parameter.name), kind]
        rows.append(
            row if parameter.default is parameter.empty else [*row, _plain(parameter.default)]
        )
    if rows and rows[0][0] == "x":
        rows[0][0] = "input"
    return rows


def _plain(value: object) -> object:
    if inspect.isfunction(value):
        # its text has an address that differs from run to run
        return f"{value.__module__}.{value.__qualname__}"
    return value if isinstance(value, int | float | str | bool | type(None)) else str(value)


def _random(name: str) -> bool:
    if "dropout" in name or name in (
        "rrelu",
        "gumbel_softmax",
        "multinomial",
        "bernoulli",
        "normal",
    ):
        return True
    if name.startswith("rand"):
        return True
    overloads = getattr(torch.ops.aten, name, None)
    if overloads is None:
        return False
    return any(
        torch.Tag.nondeterministic_seeded in getattr(overloads, one).tags
        for one in overloads.overloads()
    )


def _layers(ops: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Every class of `torch.nn`: its constructor, and its operation with the attributes that hold
    the arguments."""
    layers: dict[str, Any] = {}
    for name in sorted(dir(torch.nn)):
        value = getattr(torch.nn, name)
        if not (inspect.isclass(value) and issubclass(value, torch.nn.Module)) or name == "Module":
            continue
        row: dict[str, Any] = {"init": _python_signature(inspect.signature(value.__init__))[1:]}
        operation = LAYER_OPS.get(name)
        if operation is not None:
            row["op"] = operation
            parameters = {parameter[0] for one in ops[operation]["signatures"] for parameter in one}
            probe = _probe(value)
            row["attributes"] = sorted(
                parameter for parameter in parameters if hasattr(probe, parameter)
            )
            if name in SEVERAL_ARGUMENTS:
                row["several"] = True
        layers[f"torch.nn.{name}"] = row
    return layers


def _probe(cls: type[torch.nn.Module]) -> torch.nn.Module:
    for arguments in ((), (4,), (4, 4), (4, 4, 1), (2, 4)):
        try:
            return cls(*arguments)
        except TypeError:
            continue
    raise RuntimeError(f"cannot construct torch.nn.{cls.__name__} to read its attributes")


if __name__ == "__main__":
    main()
