"""Test containers of modules: which of them a call, an element or a part may be, and that a mere
possibility leaves the rest of the body as it is."""

from __future__ import annotations

import pytest

from conftest import body_of
from regraft.structure.rank import Rank, rank
from regraft.structure.values_and_nodes import Body, Value

HEAD = """from torch import nn


class Gate(nn.Module):
    pass


def block(dim):
    return nn.Sequential(nn.Linear(dim, dim), nn.GELU())


def block_in_a_name(dim, wrap):
    net = nn.Sequential(nn.Linear(dim, dim), nn.GELU())
    if wrap:
        net = Gate()
    return net


def chain(dim):
    return nn.Sequential(block(dim), nn.Dropout(0.0))


def endless(dim):
    return nn.Sequential(endless(dim), nn.Linear(dim, dim), nn.GELU())


def layer(dim):
    return nn.Linear(dim, dim)


class M(nn.Module):
"""


def forward(init: str, lines: str = "return self.net(x)", methods: str = "") -> Body:
    """Return the lowered forward of a class whose constructor has the lines `init`."""
    code = f"{HEAD}    def __init__(self, dim, flag):\n"
    code += "".join(f"        {line}\n" for line in init.splitlines())
    code += "".join(f"    {line}\n" for line in methods.splitlines())
    code += "    def forward(self, x):\n"
    code += "".join(f"        {line}\n" for line in lines.splitlines())
    return body_of(code)[1]


def possible_ops(body: Body) -> list[str]:
    """Return the operations of a body that some module may compute."""
    return [node.op for node in body.nodes if node.possible]


def returned(body: Body) -> Value:
    """Return the value that a body returns last."""
    return body.index["py.return"][-1].args["0"]


@pytest.mark.parametrize(
    ("init", "lines"),
    [
        ("self.net = block(dim)", "return self.net(x)"),
        ("self.net = block_in_a_name(dim, flag)", "return self.net(x)"),
        ("self.net = block(dim) if flag else Gate()", "return self.net(x)"),
        ("self.nets = nn.ModuleList([block(dim), Gate()])", "return self.nets[0](x)"),
        (
            "self.nets = nn.ModuleList()\nself.nets.append(block(dim))",
            "for net in self.nets:\n    x = net(x)\nreturn x",
        ),
        (
            "self.nets = nn.ModuleList([])\n"
            "for _ in range(3):\n    self.nets.append(nn.ModuleList([Gate(), block(dim)]))",
            "for i, (gate, net) in enumerate(self.nets):\n    x = net(gate(x))\nreturn x",
        ),
        (
            "def local(dim):\n    return nn.Sequential(nn.Linear(dim, dim), nn.GELU())\n"
            "self.net = local(dim)",
            "return self.net(x)",
        ),
    ],
)
def test_what_a_module_may_compute_stands_before_its_call(init: str, lines: str) -> None:
    body = forward(init, lines)
    assert possible_ops(body) == ["linear", "gelu"]
    call = [node for node in body.index["call"] if not node.possible][-1]
    assert call.effect
    assert body.compound[call.expr] is call.output
    assert not any(node.output in call.args.values() for node in body.nodes if node.possible)


@pytest.mark.parametrize(
    "init",
    [
        "layers = [nn.Linear(dim, dim)]\nlayers.append(nn.GELU())",
        "layers = []\nfor _ in range(3):\n    layers += [nn.Linear(dim, dim), nn.GELU()]",
        "layers = [nn.Linear(dim, dim)]\nif flag:\n    layers = layers + [nn.GELU()]",
        "layers = []\nlayers.extend([nn.Linear(dim, dim), nn.GELU()])",
        "first = (nn.Linear(dim, dim),)\nlayers = [*first, nn.GELU()]",
        "layers = [nn.Linear(dim, dim), nn.GELU()]\nlayers = list(layers)[:]",
        "layers = [nn.Linear(dim, dim)]\nlayers.insert(1, nn.GELU())",
    ],
)
def test_star_arguments(init: str) -> None:
    body = forward(f"{init}\nself.net = nn.Sequential(*layers)")
    assert possible_ops(body) == ["linear", "gelu"]
    assert returned(body).node is body.index["call"][-1]


def test_what_stands_between_star_arguments() -> None:
    init = "layers = [nn.Linear(dim, dim)]\nlayers += {}\nlayers.append(nn.GELU())\n"
    init += "self.net = nn.Sequential(nn.Dropout(0.0), *layers, Gate())"
    ops = possible_ops(forward(init.format("[Gate()]")))
    assert ops == ["dropout", "linear", "call", "gelu", "call"]
    ops = possible_ops(forward(init.format("more_layers(dim)")))
    assert ops == ["dropout", "linear", "call", "gelu", "call"]


@pytest.mark.parametrize(
    "init",
    [
        "self.nets = nn.ModuleList()\nwhile flag:\n    self.nets.append(nn.Linear(dim, dim))",
        "nets = []\nnets.append(nn.Linear(dim, dim))\nself.nets = nn.ModuleList(nets)",
        "self.nets = nn.ModuleList([nn.Linear(dim, dim), flag])",
    ],
)
def test_an_element_that_may_be_a_layer(init: str) -> None:
    body = forward(init, "for net in self.nets:\n    x = net(x)\nreturn x")
    layer = body.index["call"][-1].layer
    assert layer is not None
    assert [module.type for module in layer.layers] == ["torch.nn.Linear", ""]


def test_containers_inside_containers() -> None:
    assert possible_ops(forward("self.net = chain(dim)")) == [
        "linear",
        "gelu",
        "call",
        "dropout",
    ]
    body = forward("self.net = nn.Sequential(block(dim), nn.Linear(dim, dim))")
    assert possible_ops(body) == ["linear", "gelu"]
    assert returned(body).node is body.index["linear"][-1]


def test_each_container_that_a_module_may_be_counts() -> None:
    init = (
        "self.net = nn.Sequential(nn.Linear(dim, dim), nn.GELU())\n"
        "if flag:\n    self.net = nn.Sequential(nn.Conv2d(dim, dim, 1), nn.BatchNorm2d(dim))"
    )
    assert possible_ops(forward(init)) == ["linear", "gelu", "conv2d", "batch_norm"]


@pytest.mark.parametrize("name", ["self.net", "self.build"])
def test_what_a_method_returns(name: str) -> None:
    build = "def build(self, dim):\n    return nn.Sequential(nn.Linear(dim, dim), nn.GELU())"
    body = forward("self.net = self.build(dim)", f"return {name}(x)", build)
    assert possible_ops(body) == (["linear", "gelu"] if name == "self.net" else [])


def test_a_function_that_calls_itself() -> None:
    assert "gelu" in possible_ops(forward("self.net = endless(dim)"))


@pytest.mark.parametrize(
    ("init", "lines"),
    [
        ("self.net = block(dim)", "return self.net(x, x)"),
        ("self.net = block(dim)", "return self.net(input=x)"),
        ("self.net = layer(dim)", "return self.net(x)"),
        ("self.net = Gate()", "return self.net(x)"),
        ("nets = nn.ModuleList()\nnets.append(block(dim))", "return self.nets[0](x)"),
        ("self.nets = []\nself.nets.append(block(dim))", "return self.nets[0](x)"),
        (
            "self.nets = nn.ModuleList([nn.ModuleList([Gate(), block(dim)])])",
            "for gate, net, rest in self.nets:\n    x = net(x)\nreturn x",
        ),
        (
            "self.nets = nn.ModuleList([nn.ModuleList([Gate(), block(dim)])])",
            "for gate, *nets in self.nets:\n    x = gate(x)\nreturn x",
        ),
    ],
)
def test_what_is_no_container_of_known_modules(init: str, lines: str) -> None:
    assert possible_ops(forward(init, lines)) == []


def test_the_argument_of_a_call_is_used_by_the_call_alone() -> None:
    body = forward("self.net = block(dim)", "h = x + 1\nreturn self.net(h)")
    assert [use.op for use in body.index["add"][0].output.uses] == ["call"]


@pytest.mark.parametrize(
    ("init", "lines", "known_rank"),
    [
        ("self.net = nn.Linear(dim, dim)", "return self.net(x.view(-1, 4))", Rank(2)),
        (
            "net = nn.Sequential(nn.Linear(dim, dim))\nself.net = net\nnet.append(flag)",
            "return self.net(x.view(-1, 4))",
            None,
        ),
        (
            "self.net = nn.Sequential(nn.Linear(dim, dim))\nself.net.add_module('a', flag)",
            "return self.net(x.view(-1, 4)).relu()",
            None,
        ),
        (
            "self.nets = nn.ModuleList([nn.Linear(dim, dim)])\nself.nets.insert(0, flag)",
            "x = x.view(-1, 4)\nfor net in self.nets:\n    return net(x)",
            None,
        ),
    ],
)
def test_modules_of_containers_do_not_tell_the_rank(
    init: str, lines: str, known_rank: Rank | None
) -> None:
    assert rank(returned(forward(init, lines))) == known_rank
