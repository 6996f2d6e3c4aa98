"""Test that `view`, `reshape` and einops split the last dimension, or join the last two, as
`unflatten` and `flatten`."""

from __future__ import annotations

import pytest

from conftest import body_of
from regraft.structure.last_dimension import rearrangement
from regraft.structure.values_and_nodes import Body, Node

HEAD = "import torch\nfrom einops import rearrange\n"


def lowered(lines: str) -> Body:
    """Return the lowered body of a method of `x`, `y` and `n` with these lines."""
    code = HEAD + "class M(torch.nn.Module):\n    def forward(self, x, y, n):\n"
    return body_of(code + "".join(f"        {line}\n" for line in lines.splitlines()))[1]


def node_of(body: Body) -> Node:
    """Return the node that makes `z`."""
    node = body.log["z"][-1].value.node
    assert node is not None
    return node


HALVES, PAIRS = [2, -1], [-1, 2]


@pytest.mark.parametrize(
    ("expression", "sizes"),
    [
        ("x.view(*x.shape[:-1], 2, -1)", HALVES),
        ("x.view(*x.size()[:-1], -1, 2)", PAIRS),
        ("x.reshape(x.shape[:-1] + (2, -1))", HALVES),
        ("x.reshape((*x.shape[:-1], -1, 2))", PAIRS),
        ("x.float().reshape(*x.shape[:-1], -1, 2)", PAIRS),
        ("x.view(*x.shape[:-1], 2, x.shape[-1] // 2)", HALVES),
        ("x.view(*x.shape[0:-1], x.size(-1) // 2, 2)", PAIRS),
        ("torch.reshape(x, (*x.shape[:-1], 2, -1))", HALVES),
        ("rearrange(x, '... (j d) -> ... j d', j=2)", HALVES),
        ("rearrange(x, 'b n (d r) -> b n d r', r=2)", PAIRS),
    ],
)
def test_splits(expression: str, sizes: list[int]) -> None:
    node = node_of(lowered(f"z = {expression}"))
    assert node.op == "unflatten" and not node.effect
    assert node.args["dim"].const == -1
    assert [size.const for size in node.args["sizes"].items or ()] == sizes


@pytest.mark.parametrize(
    "expression",
    [
        "x.view(*y.shape[:-1], 2, -1)",
        "x.view(*x.shape[1:], 2, -1)",
        "x.view(*x.shape[:-2], 2, -1)",
        "x.view(*x.shape[:-1], 3, -1)",
        "x.view(*x.shape[:-1], 2, 2)",
        "x.view(*x.shape[:-1], 2, n)",
        "x.view(*x.shape[:-1], 2, y.shape[-1] // 2)",
        "x.view(*x.shape[:-1], 2, x.shape[0] // 2)",
        "x.view(*x.shape[:-1], 2, x.shape[-1] // 4)",
        "x.view(*x.shape[:-1], 2.0, -1)",
        "x.view(*x.shape[:-1], 2)",
        "x.view(*x.shape[:-1], 1, 2, -1)",
        "x.view(x.shape[:-1], 2, -1)",
        "x.view(x.shape[:-1] * (2, -1))",
        "x.transpose(0, 1).reshape(*x.shape[:-1], 2, -1)",
        "rearrange(x, '... (j d) -> ... d j', j=2)",
        "rearrange(x, '... (j d) -> j ... d', j=2)",
        "rearrange(x, '... (j d) e -> ... j d e', j=2)",
        "rearrange(x, '... (j d) -> ... j d', j=n)",
        "rearrange(x, '... (j d) -> ... j d', j=2, d=4)",
        "rearrange(x, n, j=2)",
        "rearrange([x, y], '... (j d) -> ... j d', j=2)",
        "rearrange(x, '... d j -> ... (j d)')",
        "rearrange(x, '... d j -> ... (d j)', j=2)",
    ],
)
def test_what_splits_or_joins_something_else(expression: str) -> None:
    assert node_of(lowered(f"z = {expression}")).op not in ("unflatten", "flatten")


def test_a_list_may_change_before_its_use() -> None:
    lines = "sizes = [*x.shape[:-1], 2, -1]\nsizes[0] = n\nz = x.view(sizes)"
    assert node_of(lowered(lines)).op == "view"


def test_the_last_two_are_joined() -> None:
    node = node_of(lowered("z = rearrange(x, 'b n d r -> b n (d r)')"))
    assert (node.op, node.effect) == ("flatten", False)
    assert (node.args["start_dim"].const, node.args["end_dim"].const) == (-2, -1)


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("... (j d) -> ... j d", {}),
        ("... (j d) -> ... j d", {"k": 2}),
        ("... (j d) -> ... j d", {"j": True}),
        ("... (j j) -> ... j j", {"j": 2}),
        ("d (j d) -> d j d", {"j": 2}),
        ("1 (j d) -> 1 j d", {"j": 2}),
        ("(b c) (j d) -> (b c) j d", {"j": 2}),
        ("... (j d) -> ... j d -> x", {"j": 2}),
        ("... (j d k) -> ... j d k", {"j": 2}),
        (7, {"j": 2}),
    ],
)
def test_patterns_that_do_something_else(pattern: object, sizes: dict[str, object]) -> None:
    assert rearrangement(pattern, sizes) is None


def test_a_star_hides_how_many_sizes_there_are() -> None:
    node = node_of(lowered("z = x.view(*n, 4)"))
    assert (node.op, node.effect, node.args["size"].items) == ("view", False, None)
    assert node_of(lowered("z = x.view(*n)")).op == "call"  # `n` may be a data type


def test_a_shape_is_used_where_it_splits() -> None:
    body = lowered("sizes = x.shape[:-1]\nz = x.view(*sizes, 2, -1)")
    uses = body.log["sizes"][-1].value.every_use()
    assert [use.op for use in uses] == ["py.star"]
    (star,) = uses
    (shape,) = star.output.every_use()
    assert shape.output.every_use() == (node_of(body),)


@pytest.mark.parametrize(
    "lines",
    [
        "s = x.shape[:-1]\nx.transpose_(0, 1)\nz = x.reshape(*s, 2, -1)",
        "s = x.shape[:-1]\nx.data = y\nz = x.reshape(*s, 2, -1)",
        "s = x.shape[:-1]\nn(x)\nz = x.reshape(*s, 2, -1)",
        "n = x.shape[-1] // 2\nx.resize_(2, 8)\nz = x.reshape(*x.shape[:-1], 2, n)",
        "y = x.contiguous()\nx.squeeze_()\nz = y.reshape(*x.shape[:-1], 2, -1)",
        "s = x.shape[:-1]\nfor n in y:\n    z = x.reshape(*s, 2, -1)\n    x.t_()",
    ],
)
def test_the_shape_of_a_tensor_may_have_changed(lines: str) -> None:
    nodes = lowered(lines).nodes
    assert not any(node.op == "unflatten" for node in nodes)


def test_a_shape_is_read_again_after_a_change_in_place() -> None:
    body = lowered("s = x.shape\nx.transpose_(0, 1)\nt = x.shape\nz = x.view(*t[:-1], 2, -1)")
    assert body.log["s"][-1].value is not body.log["t"][-1].value
    assert node_of(body).op == "unflatten"
