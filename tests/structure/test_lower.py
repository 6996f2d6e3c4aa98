"""Test lowering: values, guards, layers, canonical operations, and that nothing vanishes."""

from __future__ import annotations

import time

import pytest

from conftest import body_of
from regraft.structure import guards
from regraft.structure.rank import Rank, exchanges_last_dimensions, rank
from regraft.structure.values_and_nodes import MISSING, Body, Node

HEAD = (
    "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
    "from einops import rearrange\n"
)


def forward(lines: str, init: str = "pass", parameters: str = "x, y") -> Body:
    """Return the lowered forward of lines of code."""
    code = HEAD + "class M(nn.Module):\n    def __init__(self, config):\n"
    code += "".join(f"        {line}\n" for line in init.splitlines())
    code += f"    def forward(self, {parameters}):\n"
    code += "".join(f"        {line}\n" for line in lines.splitlines())
    return body_of(code)[1]


def ops(body: Body) -> list[str]:
    """Return the operations of a body that are not Python's own."""
    return [node.op for node in body.nodes if not node.op.startswith("py.")]


def last(body: Body, op: str) -> Node:
    """Return the last node of an operation."""
    return body.index[op][-1]


@pytest.mark.parametrize(
    "expression",
    [
        "x.softmax(-1)",
        "x.softmax(dim=-1)",
        "F.softmax(x, dim=-1)",
        "torch.softmax(x, -1)",
        "nn.functional.softmax(x, -1)",
        "nn.Softmax(dim=-1)(x)",
        "nn.Softmax(-1)(x)",
        "self.soft(x)",
        "torch.special.softmax(x, -1)",
    ],
)
def test_one_operation_for_its_spellings(expression: str) -> None:
    node = last(forward(f"return {expression}", "self.soft = nn.Softmax(dim=-1)"), "softmax")
    assert node.args["input"].name == "x"
    if "nn.Softmax(" not in expression:
        assert node.args["dim"].const == -1


@pytest.mark.parametrize(
    "expression", ["x.pow(2)", "x ** 2", "x * x", "torch.square(x)", "torch.pow(x, 2)"]
)
def test_squares(expression: str) -> None:
    node = last(forward(f"return {expression}"), "pow")
    assert (node.args["input"].name, node.args["exponent"].const) == ("x", 2)


@pytest.mark.parametrize(
    "expression", ["x ** 0.5", "torch.pow(x, 0.5)", "x.pow(0.5)", "torch.sqrt(x)", "x.sqrt()"]
)
def test_roots(expression: str) -> None:
    assert last(forward(f"return {expression}"), "sqrt").args["input"].name == "x"


@pytest.mark.parametrize(
    "expression",
    [
        "x.mean(-1, keepdim=True)",
        "x.mean((-1,), True)",
        "torch.mean(x, dim=[-1], keepdim=True)",
        "torch.mean(x, axis=-1, keepdims=True)",
        "torch.mean(x, axis=(-1,), keepdims=True)",
    ],
)
def test_one_dimension(expression: str) -> None:
    node = last(forward(f"return {expression}"), "mean")
    assert (node.args["dim"].const, node.args["keepdim"].const) == (-1, True)


@pytest.mark.parametrize(
    "lines",
    [
        "return x.mean((-1, -2), True)",
        "dims = [-1]\ndims[0] = 1\nreturn x.mean(dims, True)",
        "return x.mean(y, True)",
    ],
)
def test_other_dimensions(lines: str) -> None:
    assert last(forward(lines), "mean").args["dim"].const is MISSING


@pytest.mark.parametrize(
    "expression",
    [
        "x.mean(axis=-1, keepdims=True)",  # of an array of NumPy
        "F.softmax(x, axis=-1)",
        "torch.mean(x, dim=-1, axis=-1)",
    ],
)
def test_keywords_that_pytorch_does_not_take(expression: str) -> None:
    assert ops(forward(f"return {expression}")) == ["call"]


@pytest.mark.parametrize(
    "expression", ["x.size(-1)", "x.shape[-1]", "x.size(dim=-1)", "x.size()[-1]"]
)
def test_sizes(expression: str) -> None:
    item = last(forward(f"return {expression}"), "py.item")
    base = item.args["base"].attribute()
    assert base is not None and (base[0].name, base[1]) == ("x", "shape")
    assert (item.args["index"].const, item.output.kind) == (-1, "int")


@pytest.mark.parametrize(
    ("expression", "kind"),
    [("2 * 3", "int"), ("2 / 3", "scalar"), ("2 ** 0.5", "scalar"), ("(1,) * 2", "tuple")],
)
def test_arithmetic_of_numbers(expression: str, kind: str) -> None:
    assert last(forward(f"return {expression}"), "py.binary").output.kind == kind


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("torch.bmm(x, y)", 3),
        ("x.baddbmm(y, y)", 3),
        ("torch.einsum('ij,jk->ik', x, y)", 2),
        ("torch.bmm(x, y) * int(y) ** -0.5", 3),
        ("torch.cat((x.view(-1, 4), y), 1)", 2),
        ("torch.cat([x, y.unsqueeze(0).view(1, 2, 3)], dim=-1)", 3),
    ],
)
def test_ranks(expression: str, number: int) -> None:
    body = forward(f"z = {expression}")
    assert rank(body.log["z"][-1].value) == Rank(number)


@pytest.mark.parametrize(
    "lines",
    [
        "z = torch.cat((x, y), 1)",
        "z = torch.cat((x.view(-1), y), 0)",
        "z = torch.cat((x.view(-1, 4), y.view(1, 2, 3)), 1)",
        "parts = [x.view(-1, 4), y]; parts[0] = y; z = torch.cat(parts, 1)",
    ],
)
def test_joined_parts_without_a_known_rank(lines: str) -> None:
    assert rank(forward(lines).log["z"][-1].value) is None


@pytest.mark.parametrize(
    ("expression", "exchanges"),
    [
        ("x.mT", True),
        ("x.transpose(-1, -2)", True),
        ("torch.bmm(x, y).transpose(1, 2)", True),
        ("torch.bmm(x, y).transpose(0, 1)", False),
        ("x.permute(0, 2, 1)", True),
        ("x.permute(0, 1, 2)", False),
        ("rearrange(x, 'b i j -> b j i')", True),
        ("rearrange(x, 'b i j -> b (j i)')", False),
    ],
)
def test_exchanges_of_the_last_dimensions(expression: str, exchanges: bool) -> None:
    value = forward(f"z = {expression}").log["z"][-1].value
    assert value.node is not None and exchanges_last_dimensions(value.node) == exchanges


@pytest.mark.parametrize(
    "expression", ["x @ y", "torch.matmul(x, y)", "x.matmul(y)", "torch.bmm(x, y)", "x.bmm(y)"]
)
def test_matrix_products(expression: str) -> None:
    node = last(forward(f"return {expression}"), "matmul")
    assert (node.args["input"].name, node.args["other"].name) == ("x", "y")


@pytest.mark.parametrize(
    "expression",
    ["x.float()", "x.to(torch.float32)", "x.to(dtype=torch.float32)", "x.type(torch.float32)"],
)
def test_casts(expression: str) -> None:
    assert last(forward(f"return {expression}"), "to").args["dtype"].name == "torch.float32"


def test_a_local_name_hides_an_import() -> None:
    assert (
        last(forward("F = self.other\nreturn F.softmax(x)"), "softmax").args["input"].name
        == "self.other"
    )
    assert "softmax" not in ops(forward("return F(x)", parameters="x, F"))


def test_rebinding_makes_new_values_and_aliases_share_one() -> None:
    body = forward("h = x + y\nz = h\nh = h * 2\nreturn h + z")
    add, total = body.index["add"]
    assert total.args["other"] is add.output
    assert total.args["input"] is body.index["mul"][0].output


def test_shape_arithmetic_is_not_tensor_arithmetic() -> None:
    body = forward("shape = x.size()[:-1] + (2, 3)\nn = x.shape[0] * 2\nreturn x.view(shape) + n")
    assert ops(body).count("add") == 1
    assert "mul" not in ops(body)


def test_join_makes_a_phi_with_guards() -> None:
    body = forward("if y is None:\n    h = x + 1\nelse:\n    h = x * 2\nreturn torch.relu(h)")
    phi = last(body, "relu").args["input"]
    assert phi.origin == "phi"
    assert [(guards.text(guard), value.node.op) for guard, value in phi.options if value.node] == [
        ("y is None", "add"),
        ("y is not None", "mul"),
    ]


def test_early_return_guards_what_follows() -> None:
    body = forward(
        "if self.fast:\n    return x\nif self.other:\n    x = x + 1\nreturn torch.relu(x)"
    )
    assert guards.text(last(body, "add").guard) == "not self.fast and self.other"
    assert guards.text(last(body, "relu").guard) == "not self.fast"


def test_loop_carried_values_are_phi_and_loops_are_marked() -> None:
    body = forward("for layer in self.layers:\n    x = layer(x) + x\nreturn torch.relu(x)")
    assert last(body, "add").statement.loop != 0
    assert last(body, "relu").args["input"].origin == "phi"
    assert last(body, "add").args["other"].origin == "phi"


def test_values_that_leave_through_a_phi_count_as_used() -> None:
    body = forward("h = x\nif self.flag:\n    h = x + 1\n    z = torch.relu(h)\nreturn h")
    uses = {node.op for node in last(body, "add").output.every_use()}
    assert "py.return" in uses


@pytest.mark.parametrize(
    "statement",
    [
        "self.cache(x)",
        "other(x)",
        "x.add_(y)",
        "x += y",
        "x[0] = y",
        "F.relu(x, inplace=True)",
        "self.state = x",
        "await_(x)",
    ],
)
def test_effects_are_marked(statement: str) -> None:
    assert any(node.effect for node in forward(statement).nodes)


@pytest.mark.parametrize(
    "statement",
    ["len(x)", "x.view(2, 3)", "torch.zeros(3)", "x.transpose(1, 2)", "isinstance(x, int)"],
)
def test_pure_calls_have_no_effect(statement: str) -> None:
    assert not any(node.effect for node in forward(statement).nodes)


def test_layers_with_guards_bases_and_containers() -> None:
    structure, body = body_of(
        HEAD
        + """
class Base(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.dim, eps=1e-6)
        self.build(config)

    def build(self, config):
        if config.bias:
            self.proj = nn.Linear(config.dim, config.dim)

class M(Base):
    def __init__(self, config):
        super().__init__(config)
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(config.depth)])
        self.lost = nn.Identity()

    def replace(self):
        self.lost = None

    def forward(self, x):
        x = self.mlp(self.norm(x))
        for block in self.blocks:
            x = block(x)
        return self.proj(x)
"""
    )
    assert structure.layers["self.norm"][0].type == "torch.nn.LayerNorm"
    assert guards.text(structure.layers["self.proj"][0].guard) == "config.bias"
    assert [layer.type for layer in structure.layers["self.lost"]] == ["torch.nn.Identity", ""]
    assert ops(body) == ["layer_norm", "linear", "gelu", "linear", "linear", "linear"]


def test_a_layer_chosen_by_the_configuration() -> None:
    body = forward("return self.act(x)", "self.act = ACT2FN[config.act]")
    assert last(body, "call").layer is not None


def test_unknown_syntax_is_recorded_not_dropped() -> None:
    body = forward("z = yield x\nreturn z")
    assert [statement.reason for statement in body.opaque] == ["yield leaves the function"]


def test_time_is_linear_in_the_number_of_branches() -> None:
    def seconds(count: int) -> float:
        code = "\n".join(
            f"if self.flag{i}:\n    x = x + {i}\n    h{i} = torch.relu(x)" for i in range(count)
        )
        best = 9.0
        for _ in range(3):
            started = time.process_time()
            forward(code + "\nreturn x")
            best = min(best, time.process_time() - started)
        return best

    assert seconds(400) < 8 * seconds(100)


@pytest.mark.parametrize(
    "statement", ["self.soft.dim = 0", "soft = self.soft\nsoft.dim = 0", 'setattr(soft, "dim", 0)']
)
def test_an_argument_of_a_layer_is_unknown_where_its_attribute_is_set_later(statement: str) -> None:
    body = forward("return self.soft(x)", f"self.soft = nn.Softmax(dim=-1)\n{statement}")
    assert last(body, "softmax").args["dim"].const is MISSING
    body = forward("return self.soft(x)", "self.soft = nn.Softmax(dim=-1)\nself.other.dim = 0")
    assert last(body, "softmax").args["dim"].const == -1


def test_named_parts_of_a_pair_are_its_elements() -> None:
    body = forward("return torch.sort(x).values, x.topk(3).indices, y.values")
    assert [node.args["index"].const for node in body.index["py.item"]] == [0, 1]
    assert [node.spelling for node in body.index["py.attr"]] == ["values"]


@pytest.mark.parametrize(
    ("target", "indices"),
    [
        ("a, b, c", [0, 1, 2]),
        ("a, *b", [0, None]),
        ("*a, b", [None, -1]),
        ("a, *b, c, d", [0, None, -2, -1]),
    ],
)
def test_indices_of_unpacked_parts(target: str, indices: list[int | None]) -> None:
    items = [node for node in forward(f"{target} = x.shape").index["py.item"] if node.args]
    found = [node.args["index"].const if "index" in node.args else None for node in items]
    assert [index for index in found if index is not None] == [
        index for index in indices if index is not None
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "[i for i, x in enumerate(iterable=xs)]",
        "[i for i, x in enumerate()]",
        "torch.permute()",
        "torch.permute(dims=(1, 0))",
    ],
)
def test_calls_without_their_first_argument(expression: str) -> None:
    structure, _ = body_of(f"import torch\n\ndef forward(xs):\n    return {expression}\n")
    assert structure.bodies
