"""Test kernels that are called before a loop: which loops keep their slices, and what the rewritten
ones look like."""

from __future__ import annotations

import pytest

from conftest import compiled_rules, source_of
from regraft.scanning import CompiledRule, check_source, rewrite_file

BOUND = "the tensor may not be bound before the loop"
STORED = "the slice itself is returned or stored"
GRADIENTS = "the loop computes gradients in its steps"


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return the rule for slices in loops, compiled."""
    return compiled_rules("idioms/unbind-in-loop")


def rewritten(rules: tuple[CompiledRule, ...], body: str) -> tuple[str, list[str]]:
    """Return the lines of a function of `x`, `y` and `flag` after all rewrites, and the reasons of
    the places that stay."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    source = source_of(f"import torch\n\n\ndef f(x, y, flag):\n{lines}")
    report = check_source(source, rules)
    changed, _ = rewrite_file(report, rules)
    body_lines = changed.decode().split("def f(x, y, flag):\n", 1)[1].splitlines()
    reasons = [finding.reason for finding in report.findings if finding.patch is None]
    return "\n".join(line.removeprefix("    ") for line in body_lines), reasons


@pytest.mark.parametrize(
    "body",
    [
        "for t in range((x := x * 2).shape[1]):\n    y = y + torch.tanh(x[:, t])\nreturn y",
        "return [sum([torch.tanh(x[:, t]) for t in range(4)]) for x in (x, y)]",
        "return [torch.tanh(x[:, t]) for x in (x, y) for t in range(4)]",
        "for t in range(4):\n    y = y + torch.tanh(x[:, t + torch.tensor([0, 1])])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[:, not t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[:, t, flag])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[:, t, [0, 1]])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[:, t, True])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[..., t, 0])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[..., t, None])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[0, t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[t, t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[None, t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[flag, t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[:, None, t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[..., None, t])\nreturn y",
        "for t in range(4):\n    y = y + torch.tanh(x[:, ..., t])\nreturn y",
    ],
)
def test_what_differs_between_the_steps_or_is_no_number_stays(
    rules: tuple[CompiledRule, ...], body: str
) -> None:
    assert rewritten(rules, body) == (body, [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for t in range(x.mul_(2).shape[1]):\n    y = y + torch.tanh(x[:, t])", "in place"),
        ("if flag:\n    z = x * 2\nfor t in range(flag):\n    y = y + torch.tanh(z[:, t])", BOUND),
        ("if flag:\n    del x\nfor t in range(flag):\n    y = y + torch.tanh(x[:, t])", BOUND),
        (
            "def g():\n    nonlocal x\n    x = x * 2\n"
            "for t in range(4):\n    y = y + torch.tanh(x[:, t])\n    g()",
            "another function may bind x",
        ),
        (
            "if flag: \\\n    y = torch.stack([torch.tanh(x[:, t]) for t in range(4)])",
            "share a line",
        ),
        ("for t in range(4):\n    x.data = y\n    y = y + torch.tanh(x[:, t])", "attribute"),
        ("for t in range(4):\n    update(x, t)\n    y = y + torch.tanh(x[:, t])", "may change"),
        ("for t in range(4):\n    torch.tanh(x[:, t]).sum().backward()", GRADIENTS),
        (
            "for t in range(4):\n    a = x[:, t]\n    a.register_hook(y)\n    y = y + a.tanh()",
            "the gradient of the slice is looked at",
        ),
        ("for t in range(4):\n    y[t] = x[:, t]", STORED),
        ("for t in range(4):\n    y += [x[:, t]]", STORED),
        ("for t in range(4):\n    y.append({'x': x[:, t].unsqueeze(1)})", STORED),
        ("with torch.no_grad():\n    for t in range(4):\n        y = y + x[:, t]", "no gradients"),
        ("for t in range(4):\n    y = y + (x[:, t] == 2).sum()", "has no gradient"),
        ("for t in range(4):\n    y.append(x[:, t].tolist())", "has no gradient"),
        ("for t in range(4):\n    y.append(x[:, t].detach().mean())", "has no gradient"),
        ("for t in range(4):\n    y.append(x[:, t].argmax(-1))", "has no gradient"),
        ("z = x.long()\nfor t in range(4):\n    y = y + z[:, t].abs()", "whole numbers"),
        (
            "z = x.argmax(1)[:, None]\nfor t in range(4):\n    y = y + z[:, t].abs()",
            "whole numbers",
        ),
        ("z = (x > 2).clone()\nfor t in range(4):\n    y = y + z[:, t] * x", "whole numbers"),
        ("z = x.to(torch.int64)\nfor t in range(4):\n    y = y + z[:, t].abs()", "whole numbers"),
        ("for t in range(4):\n    z = torch.tanh(x[:, t])\n    yield z", "other code runs"),
    ],
)
def test_loops_that_stay_have_a_reason(
    rules: tuple[CompiledRule, ...], body: str, reason: str
) -> None:
    text, reasons = rewritten(rules, body)
    assert text == body
    assert reasons
    assert all(reason in each for each in reasons)


def test_slices_along_other_dimensions_have_other_names(rules: tuple[CompiledRule, ...]) -> None:
    body = """
for t in range(3):
    y = y + torch.tanh(x[:, t])
    parts = [torch.tanh(x[:, :, u]) for u in range(2)]
    y = y * torch.tanh(x[:, -t]) + sum(parts)
"""
    expected = """
x_slices = slices_along(x, 1)
for t in range(3):
    y = y + torch.tanh(x_slices[t])
    x_slices_2 = slices_along(x, 2)
    parts = [torch.tanh(x_slices_2[u]) for u in range(2)]
    y = y * torch.tanh(x_slices[-t]) + sum(parts)
"""
    assert rewritten(rules, body) == (expected.strip("\n"), [])


def test_nested_loops_share_the_slices_of_the_outermost(rules: tuple[CompiledRule, ...]) -> None:
    body = """
for t in range(3):
    y = y + torch.tanh(x[:, t])
    for u in range(2):
        y = y * torch.tanh(x[:, u] + x[:, t + u])
"""
    expected = """
x_slices = slices_along(x, 1)
for t in range(3):
    y = y + torch.tanh(x_slices[t])
    for u in range(2):
        y = y * torch.tanh(x_slices[u] + x_slices[t + u])
"""
    assert rewritten(rules, body) == (expected.strip("\n"), [])


def test_a_loop_may_take_more_slices_than_there_are_rounds(
    rules: tuple[CompiledRule, ...],
) -> None:
    slices = [f"    y = y + torch.tanh(x[:, t - {number}])" for number in range(1, 16)]
    text, reasons = rewritten(rules, "\n".join(["for t in range(20):", *slices]))
    assert text.count("x_slices[t - ") == 15
    assert not reasons


def test_names_of_handlers_are_not_free(rules: tuple[CompiledRule, ...]) -> None:
    body = """
for t in range(4):
    try:
        y = y + torch.tanh(x[:, t])
    except ValueError as x_slices:
        pass
"""
    assert "x_slices_2 = slices_along(x, 1)" in rewritten(rules, body)[0]


def test_a_result_that_is_written_into_is_not_the_tensor(rules: tuple[CompiledRule, ...]) -> None:
    body = """
total, out, other = x.sum(), torch.empty_like(x), torch.zeros(x.shape)
for t in range(4):
    out[:, t] = torch.tanh(x[:, t])
    other[:, t] = torch.sigmoid(x[:, t])
    total += out.sum()
"""
    text, reasons = rewritten(rules, body)
    assert text.count("x_slices[t]") == 2
    assert not reasons


def test_a_name_that_the_loop_binds_again_does_not_have_the_slices(
    rules: tuple[CompiledRule, ...],
) -> None:
    body = """
from regraft.ops import slices_along
parts = slices_along(x, 1)
for t in range(4):
    parts = parts[1:]
    y = y + torch.tanh(x[:, t])
"""
    text, _ = rewritten(rules, body)
    assert "y + torch.tanh(x_slices[t])" in text


def test_further_indices_are_those_of_the_slice(rules: tuple[CompiledRule, ...]) -> None:
    body = """
for t in range(3):
    y = y + torch.tanh(x[:, t, None]) * x[:, t, :, None] * x[:, t, -1, None, None]
    y = y + x[:, :, t, ...] + x[:, :, t, 1:, None] + x[:, t, :, :t]
    y = y + x[:, :, :, t] + x[:, :, :, t, None] + x[:flag, t] + x[::2, 1:, t, 0]
    for u in range(2):
        y = y + torch.tanh(x[:, :, t, u])
"""
    expected = """
x_slices = slices_along(x, 1)
x_slices_2 = slices_along(x, 2)
x_slices_3 = slices_along(x, 3)
for t in range(3):
    y = y + torch.tanh(a[t][:, None]) * a[t][:, :, None] * a[t][:, -1, None, None]
    y = y + b[t] + b[t][:, :, 1:, None] + a[t][:, :, :t]
    y = y + c[t] + c[t][:, :, :, None] + a[t][:flag] + b[t][::2, 1:, 0]
    for u in range(2):
        y = y + torch.tanh(b[t][:, :, u])
"""
    numbers = {"a": "x_slices"} | {name: f"x_slices_{n}" for n, name in enumerate("bc", 2)}
    text, reasons = rewritten(rules, body)
    for name, slices in numbers.items():
        expected = expected.replace(f"{name}[t]", f"{slices}[t]")
    assert sorted(text.split("\n")) == sorted(expected.strip("\n").split("\n"))
    assert not reasons


def test_further_indices_give_the_same_results_and_gradients(
    rules: tuple[CompiledRule, ...],
) -> None:
    torch = pytest.importorskip("torch")
    body = """
y = 0
for t in range(1, 3):
    y = y + torch.tanh(x[:, t, None]).sum() * x[:, t, :, None].cos().sum()
    y = y + x[:, t, -1, None, None].exp().sum() + x[:, :, t, 1:, None].sin().sum()
    y = y + x[:, :, :, t].cos().sum()
    y = y + x[:2, t].tanh().sum() * x[::2, 1:, t, 0].cos().sum() + x[:, :t, :, t].sin().sum()
    y = y + x[:, :, :, t, None].tanh().sum() + x[:, -t, :, :t].tanh().sum()
    for u in range(2):
        y = y + torch.tanh(x[:, :, t, u]).sum() * x[:, t, ..., u].cos().sum()
return y
"""
    text, reasons = rewritten(rules, body)
    assert not reasons
    assert "x[" not in text
    x = torch.randn(3, 4, 5, 6, dtype=torch.float64, requires_grad=True)
    results = []
    for lines in (body.strip("\n"), text):
        inner = "".join(f"    {line}\n" for line in lines.split("\n"))
        namespace = {"torch": torch}
        header = "from regraft.ops import slices_along\n\n\ndef f(x):\n"
        exec(header + inner, namespace)
        result = namespace["f"](x)
        results.append((result, *torch.autograd.grad(result, x)))
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("library", ["numpy", "mlx.core", "jax.numpy", "tensorflow"])
def test_files_of_another_library_stay(rules: tuple[CompiledRule, ...], library: str) -> None:
    source = (
        f"import {library} as np  # instead of torch\n\n\n"
        "def scan(a, h):\n    for t in range(4):\n        h = a[:, t] * h\n    return h\n"
    )
    (finding,) = check_source(source_of(source), rules).findings
    assert "an array of" in finding.reason
    (finding,) = check_source(source_of(f"import torch\n{source}"), rules).findings
    assert finding.patch is not None


def test_arrays_that_another_library_computes_stay(rules: tuple[CompiledRule, ...]) -> None:
    source = (
        "import numpy as np\nimport torch\n\n\n"
        "def f(x, y):\n    z = np.tanh(x)[None] * np.exp(x)\n    w = y * np.sqrt(len(x))\n"
        "    for t in range(4):\n        y = y + np.tanh(z[:, t]) + torch.relu(w[:, t])\n"
        "    return y\n"
    )
    first, second = check_source(source_of(source), rules).findings
    assert first.patch is None
    assert "an array of NumPy" in first.reason
    assert second.patch is not None


def test_arrays_that_tensors_become_stay(rules: tuple[CompiledRule, ...]) -> None:
    source = (
        "import numpy as np\nimport torch\n\n\n"
        "def f(x, y):\n    x = x.detach().cpu().numpy()\n"
        "    y = y.numpy().reshape(4, -1).astype(np.float32)\n"
        "    z = torch.from_numpy(y.copy()).requires_grad_()\n"
        "    for t in range(4):\n        h = np.tanh(x[:, t]) + np.tanh(y[:, t])\n"
        "        z = z + torch.relu(torch.tanh(z)[:, t])\n    return h, z\n"
        "\n\ndef g(x, y):\n    x = torch.from_numpy(x.numpy()) * y\n"
        "    for t in range(4):\n        y = y + torch.relu(x[:, t])\n    return y\n"
    )
    first, second, third = check_source(source_of(source), rules).findings
    assert "an array of NumPy" in first.reason
    assert "an array of NumPy" in second.reason
    assert third.patch is not None
