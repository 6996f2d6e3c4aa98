"""Test loops that carry a state which each step multiplies and adds to: which of them are
rewritten, and that both versions compute the same."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import compiled_rules, source_of
from regraft.scanning import CompiledRule, check_source, rewrite_file

torch = pytest.importorskip("torch")

STEPS = 40
HEAD = "import torch\n\n\ndef f(a, b, h, w, n):\n"
LOOP = "for t in range(n):\n    h = a[:, t] * h + b[:, t]\n"
LISTED = f"o = []\n{LOOP}    o.append(h)\n"
STORED = "the state may be stored, or its gradient looked at"
ALIASED = "another name of the loop has the state, too"
SHARED = "data shares the memory of a tensor"
IN_PLACE = "the state is changed in place"
CHANGED = "the tensor is changed in place"
CARRIED = "$state is not $result of the step before"


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return the rule for recurrences, compiled."""
    return compiled_rules("idioms/linear-recurrence")


def rewritten(rules: tuple[CompiledRule, ...], body: str) -> tuple[str, str]:
    """Return the text of a function `f` after all rewrites, and the reason of a place that stays:
    that of the finding or, where there is none, of the nearest miss."""
    lines = "".join(f"    {line}\n" for line in body.strip().split("\n"))
    source = source_of(HEAD + lines)
    report = check_source(source, rules, explain=True)
    changed, _ = rewrite_file(report, rules)
    reasons = [finding.reason for finding in report.findings if finding.patch is None]
    return changed.decode(), " ".join([*reasons, *(miss.reason for miss in report.misses)])


def results(text: str, dtype: Any, grad: bool) -> list[Any]:
    """Return the tensors that the function `f` of a text gives, and the first and second
    derivatives of a sum of their powers; the name of the error that it raises, if any."""
    torch.manual_seed(0)
    shapes = (2, STEPS, 3), (2, STEPS, 3), (2, 3), (3, 3)
    tensors = [(torch.randn(shape, dtype=dtype) / 2).requires_grad_(grad) for shape in shapes]
    names: dict[str, Any] = {}
    exec(compile(text, "program", "exec"), names)
    try:
        result = names["f"](*tensors, STEPS)
    except (IndexError, RuntimeError) as error:
        return [type(error).__name__]
    states = list(result) if isinstance(result, list | tuple) else [result]
    if not grad:
        return states
    wanted = [*tensors, *(state for state in states if state.grad_fn is not None)]
    slopes = torch.autograd.grad(
        sum((state.abs() ** 1.5).sum() for state in states),
        wanted,
        create_graph=True,
        allow_unused=True,
    )
    total = sum((slope.abs() ** 2).sum() for slope in slopes[:4] if slope is not None)
    return [*states, *slopes, *torch.autograd.grad(total, tensors, allow_unused=True)]


@pytest.mark.parametrize(
    "body",
    [
        LOOP + "return h",
        "for t in range(n):\n    s, u = a[:, t], b[:, t]\n    h = s * h + u\nreturn h",
        LISTED + "return torch.stack(o, 1)",
        (
            "y = 0\nfor t in range(n):\n    p = h\n    h = a[:, t] * h + b[:, t]\n"
            "    y = y + (h - p).tanh()\nreturn y"
        ),
        "y = torch.zeros(2, n, 3, dtype=a.dtype)\n" + LOOP + "    y[:, t] = h\nreturn y",
        LOOP + "    if t == 7:\n        break\nreturn h",
        "y = 0\n" + LOOP + "    if t % 2:\n        continue\n    y = y + h.tanh()\nreturn y",
        (
            "for t in range(n):\n    if t % 3 == 1:\n        continue\n"
            "    h = a[:, t] * h + b[:, t]\nreturn h"
        ),
        LOOP + "    if h.sum() > 1:\n        break\nreturn h",
        LOOP + "else:\n    h = h.tanh()\nreturn h",
        "for t in range(0):\n    h = a[:, t] * h + b[:, t]\nreturn h",
        ("a = a[:, :0]\nfor t in range(0):\n    h = a[:, t] * h + b[:, t]\nreturn h"),
        "for t in range(n + 1):\n    h = a[:, t] * h + b[:, t]\nreturn h",
        "for t in range(-5, 0):\n    h = a[:, t] * h + b[:, t]\nreturn h",
        "for t in range(0, n, 2):\n    h = a[:, t] * h + b[:, t]\nreturn h",
        "for t in reversed(range(n)):\n    h = a[:, t] * h + b[:, t]\nreturn h",
        ("for t in range(n - 1, -1, -1):\n    h = h * a[:, t] + b[:, t]\nreturn h"),
        "k = h * 2\n" + LOOP + "    k = a[:, t] * k + b[:, t]\nreturn h, k",
        "k = h * 2\n" + LOOP + "    k = a[:, t] * k + h\nreturn h, k",
        "h = 0\n" + LOOP + "return h",
        "for t in range(n):\n    h = 0.9 * h + b[:, t]\nreturn h",
        "g = 0.9\nfor t in range(n):\n    h = b[:, t] + g * h\nreturn h",
        ("g = w[0].sigmoid()\nfor t in range(n):\n    h = b[:, t] + g * h\nreturn h"),
        "h = h[0]\n" + LOOP + "return h",
        "h = h.detach().to(torch.complex128)\n" + LOOP + "return h",
        "b = b.to(torch.complex64)\n" + LOOP + "return h",
        ("a = (a.real * 4).long()\nfor t in range(10):\n    h = a[:, t] * h + b[:, t]\nreturn h"),
        (
            "b = torch.where(torch.arange(n)[:, None] == 20, float('nan'), b)\n"
            "for t in range(10):\n    h = a[:, t] * h + b[:, t]\nreturn h"
        ),
        ("a = torch.where(torch.arange(n)[:, None] == 20, float('inf'), a)\ny = 0\n")
        + LOOP
        + "    if t < 15:\n        y = y + h\nreturn y",
        "a, b, h = a[:0], b[:0], h[:0]\n" + LOOP + "return h",
        "a = a[:, :, :1].expand(2, n, 3)\n" + LOOP + "return h",
        (
            "a, b, h = a.mT, b.mT, h\nfor t in range(n):\n"
            "    h = a[:, :, t] * h + b[:, :, t]\nreturn h"
        ),
        "for t in range(n):\n    h = a[:, t] * h + a[:, t]\nreturn h",
        ("for e in range(3):\n    for t in range(n):\n        h = a[:, t] * h + b[:, t]\nreturn h"),
        LISTED + "return torch.stack(o[1:5])",
        "o = []\n" + LOOP + "    o.insert(0, h)\nreturn torch.stack(o[::-1], dim=1)",
        "o = []\n" + LOOP + "    o.append((h @ w).tanh())\nreturn o",
        "o = []\n" + LOOP + "    o.append(h.clone())\nreturn o",
        ("for t in range(n):\n    s = a[:, t]\n    h = s * h + b[:, t]\n    t = 3\nreturn h"),
        ("for t in range(n - 1):\n    t = t + 1\n    h = a[:, t] * h + b[:, t]\nreturn h"),
        "next_h = 3\n" + LOOP + "return h * next_h",
        LOOP + "    k = h\n    del k\nreturn h",
        LOOP + "k = h\nfor t in range(n):\n    h = a[:, t] * h + b[:, t]\nreturn k, h",
        ("for t in range(n):\n    s = a[:, t]\n    u = b[:, t]\n    h = s * h + u\nreturn h"),
        "for t in range(n):\n    p = a[:, t] * h\n    h = p + b[:, t]\nreturn h",
        (
            "for t in range(n):\n    # first\n    s = a[:, t]  # the factor\n"
            "    h = s * h + b[:, t]  # step\nreturn h"
        ),
        ("s = w\nfor t in range(n):\n    s = a[:, t]\n    h = s * h + b[:, t]\nreturn h"),
        ("for t in range(n):\n    k = h\n    h = a[:, t]\n    h = h * k + b[:, t]\nreturn h"),
        "for t in range(n): h = a[:, t] * h + b[:, t]\nreturn h",
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_both_versions_compute_the_same(
    rules: tuple[CompiledRule, ...], body: str, dtype: Any
) -> None:
    text, _ = rewritten(rules, body)
    assert "linear_recurrence(" in text
    original = HEAD + "".join(f"    {line}\n" for line in body.strip().split("\n"))
    for grad in (True, False):
        theirs, ours = results(original, dtype, grad), results(text, dtype, grad)
        for mine, other in zip(ours, theirs, strict=True):
            if mine is None or other is None:  # a part that takes no part in the result
                present = other if mine is None else mine
                assert present is None or not present.any()
            elif isinstance(other, str):
                assert mine == other
            else:
                torch.testing.assert_close(mine, other, equal_nan=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (LISTED + "return o", STORED),
        (LISTED + "return torch.stack(o), o", STORED),
        (LISTED + "return o[3] * 2, torch.stack(o)", STORED),
        (
            ("p = h\nfor t in range(n):\n    p = h\n    h = a[:, t] * h + b[:, t]\nreturn p, h"),
            ALIASED,
        ),
        ("k = h\n" + LOOP + "    if t == 3:\n        k = h\nreturn k, h", ALIASED),
        ("k = None\n" + LOOP + "    k = h.view(-1)\nreturn k", ALIASED),
        (
            "k = None\n" + LOOP + "    if k is None:\n        k = h.unsqueeze(0)\nreturn k, h",
            ALIASED,
        ),
        ("d = {}\n" + LOOP + "    d[t] = h\nreturn d", STORED),
        ("d = []\n" + LOOP + "    d.append({'h': h})\nreturn d[4]['h'], h", STORED),
        ("d = ()\n" + LOOP + "    d = d + (h,)\nreturn d", STORED),
        ("d = []\n" + LOOP + "    d += [h]\nreturn d", STORED),
        (LOOP + "    if t == 9:\n        return h\nreturn h * 2", STORED),
        (LOOP + "    z = h.detach().numpy()\n    z *= 0.5\nreturn h", "may share the memory"),
        (LOOP + "    torch._foreach_mul_([h], 0.5)\nreturn h", STORED),
        ("d = b.numpy()\n" + LOOP + "    d.fill(0.5)\nreturn h", "may share the memory"),
        (
            (
                "for t in range(n):\n    if h.real.sum() > 0:\n"
                "        h = a[:, t] * h + b[:, t]\n    else:\n        h = h * 2\n"
                "return h"
            ),
            CARRIED,
        ),
        (
            ("for t in range(n - 1):\n    h = a[:, t + 1] * h + b[:, t + 1]\nreturn h"),
            "$step would stand for two different values",
        ),
        (
            "for t in range(n - 1):\n    h = a[:, t + 1] * h + b[:, t]\nreturn h",
            "$step would stand for two different values",
        ),
        (
            ("for t in range(n):\n    h = a[:, n - 1 - t] * h + b[:, n - 1 - t]\nreturn h"),
            "$step would stand for two different values",
        ),
        (
            "for t in range(n):\n    h = a[:, t % 5] * h + b[:, t % 5]\nreturn h",
            "$step would stand for two different values",
        ),
        (
            (
                "a = a * 1\nfor t in range(n - 1):\n    h = a[:, t] * h + b[:, t]\n"
                "    a[:, t + 1] = h\nreturn h"
            ),
            CHANGED,
        ),
        (
            (
                "b = b * 1\nfor t in range(n - 1):\n    h = a[:, t] * h + b[:, t]\n"
                "    b[:, t + 1] += h\nreturn h"
            ),
            CHANGED,
        ),
        (
            LOOP
            + ("    b = torch.cat([b[:, : t + 1], (b[:, t + 1 :] + h[:, None])], 1)\nreturn h"),
            "expected mul, found py.item",
        ),
        (LOOP + "    a = a * 0.9\nreturn h", "$a is computed inside the loop"),
        ("b = b.clone()\n" + LOOP + "    b.data.mul_(0.5)\nreturn h", CHANGED),
        ("b = b.clone()\nd = b.detach()\n" + LOOP + "    d.mul_(0.5)\nreturn h", CHANGED),
        ("b = b.clone()\nd = b.data\n" + LOOP + "    d.mul_(0.5)\nreturn h", CHANGED),
        ("b = b.clone()\nd = b.view(-1)\n" + LOOP + "    d.mul_(0.5)\nreturn h", CHANGED),
        (
            "b = b.detach().clone()\nd = b.numpy()\n" + LOOP + "    d *= 0.5\nreturn h",
            "may share the memory",
        ),
        ("b = b.clone()\ndef g():\n    b.data.mul_(0.5)\n" + LOOP + "    g()\nreturn h", CHANGED),
        (
            "b = b.clone()\nd = [b]\ndef g():\n    d[0].data.mul_(0.5)\n"
            + LOOP
            + "    g()\nreturn h",
            CHANGED,
        ),
        (
            "y = 0\n" + LOOP + "    h *= 0.5\n    y = y + h.tanh()\nreturn y",
            "the input of add depends on which branch was taken",
        ),
        (
            "y = 0\n" + LOOP + "    v = h[:, 0]\n    v *= 0.5\n    y = y + h.tanh()\nreturn y",
            "the result is changed in place afterwards",
        ),
        ("y = 0\n" + LOOP + "    h.data.mul_(0.5)\n    y = y + h.tanh()\nreturn y", STORED),
        (LOOP + "h.mul_(2)\nreturn h", "the result is changed in place afterwards"),
        (
            ("for t in range(10):\n    h = a[:, t] * h + b[:, t]\nh.mul_(2)\nreturn h"),
            "the result is changed in place afterwards",
        ),
        (
            "for t in range(10):\n    h = a[:, t] * h + b[:, t]\nh[0] = 0\nreturn h",
            "the result is changed in place afterwards",
        ),
        (
            "k = []\n"
            + LOOP
            + (
                "    if h.requires_grad:\n        h.retain_grad()\n    k.append(h)\n"
                "return torch.stack(k)"
            ),
            STORED,
        ),
        (
            "k = []\n"
            + LOOP
            + (
                "    if h.requires_grad:\n        h.register_hook(lambda g: g * 0.5)\n"
                "    k.append(h)\nreturn torch.stack(k)"
            ),
            STORED,
        ),
        (
            "y = 0\n"
            + LOOP
            + (
                "    if h.requires_grad and not h.is_complex():\n"
                "        y = y + torch.autograd.grad((h**2).sum(), a, create_graph=True)[0].sum()\n"
                "return h, y"
            ),
            "the loop computes gradients in its steps",
        ),
        (
            (
                "for t in range(n):\n    with torch.no_grad():\n"
                "        h = a[:, t] * h + b[:, t]\nreturn h * a[:, 0]"
            ),
            "the loop may change the mode in which the slice is taken",
        ),
        (
            (
                "with torch.no_grad():\n    for t in range(n):\n"
                "        h = a[:, t] * h + b[:, t]\nreturn h * a[:, 0]"
            ),
            "no gradients are recorded here",
        ),
        (
            (
                "for t in range(n):\n    torch.set_grad_enabled(t % 2 == 0)\n"
                "    h = a[:, t] * h + b[:, t]\ntorch.set_grad_enabled(True)\n"
                "return h * a[:, 0]"
            ),
            "the loop may change the mode in which the slice is taken",
        ),
        (
            (
                "for t in range(n):\n"
                "    a = torch.sigmoid(h)[:, None].expand(2, n, 3)\n"
                "    h = a[:, t] * h + b[:, t]\nreturn h"
            ),
            "$a is computed inside the loop",
        ),
        (
            "fs = []\n" + LOOP + "    fs.append(lambda h=h: h)\nreturn [g() for g in fs]",
            "a function inside this one reads the state",
        ),
        (
            "k = []\ndef g():\n    k.append(h)\n" + LOOP + "    g()\nreturn k",
            "a function inside this one reads the state",
        ),
        ("def g():\n    nonlocal h\n    h = h * 0.5\n" + LOOP + "    g()\nreturn h", CARRIED),
        (
            (
                "def g(h):\n    for t in range(n):\n        h = a[:, t] * h + b[:, t]\n"
                "        yield h\nreturn list(g(h))"
            ),
            "other code runs between the steps of the loop",
        ),
        (
            "class S: pass\ns = S()\n" + LOOP + "    if t == 3:\n        s.h = h\nreturn s.h, h",
            STORED,
        ),
        (
            (
                "class S: pass\ns = S()\ns.h = h\nfor t in range(n):\n"
                "    s.h = a[:, t] * s.h + b[:, t]\nreturn s.h"
            ),
            CARRIED,
        ),
        (
            (
                "k = h * 2\nfor t in range(n):\n"
                "    h, k = a[:, t] * k + b[:, t], a[:, t] * h + b[:, t]\nreturn h, k"
            ),
            CARRIED,
        ),
        (LOOP + "    h = a[:, t] * h + b[:, t]\nreturn h", CARRIED),
        (
            ("g = 0.9\nfor t in range(n):\n    h = b[:, t] + g * h\n    g = g * 0.9\nreturn h"),
            "$a is computed inside the loop",
        ),
        (
            (
                "for e in range(4):\n    for t in range(10):\n"
                "        h = a[:, e * 10 + t] * h + b[:, e * 10 + t]\nreturn h"
            ),
            "$step would stand for two different values",
        ),
        (
            (
                "o = []\nfor t in range(n):\n    if t % 8 == 0:\n"
                "        h = h.detach()\n    h = a[:, t] * h + b[:, t]\n"
                "    o.append(h)\nreturn torch.stack(o)"
            ),
            CARRIED,
        ),
        (LOOP + "    print(h.grad_fn) if t > n else None\nreturn h", STORED),
        (
            ("o = []\nfor t in range(n):\n    o.append(h := a[:, t] * h + b[:, t])\nreturn o"),
            "the state is not assigned to a name",
        ),
        (
            (
                "for t in range(n):\n    try:\n        h = a[:, t] * h + b[:, t]\n"
                "    except ValueError:\n        pass\nreturn h"
            ),
            CARRIED,
        ),
        ("o = []\n" + LOOP + "    o.extend([h, h * 2])\nreturn o[::7]", STORED),
        ("o = []\nq = o\n" + LOOP + "    o.append(h)\nreturn torch.stack(o), q", STORED),
        ("o = []\nq = [o]\n" + LOOP + "    o.append(h)\nreturn torch.stack(o), q", STORED),
        (LISTED + "return [x * 1 for x in o]", STORED),
        (LISTED + "return o.pop(3), torch.stack(o)", STORED),
        (
            "o = []\ndef g():\n    return o[3]\n"
            + LOOP
            + "    o.append(h)\nreturn torch.stack(o), g()",
            STORED,
        ),
        (LISTED + "x, *y = o\nreturn x, y", STORED),
        (LOOP + "    h.register_hook(w)\nreturn h", STORED),
        (LOOP + "    if n > 3:\n        h.retain_grad()\nreturn h", STORED),
        (LOOP + "    torch.Tensor.register_hook(h, w)\nreturn h", STORED),
        ("o = []\n" + LOOP + "    o.append(h.float())\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(h.cpu())\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(+h)\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(h.T)\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(h.diagonal())\nreturn o", STORED),
        ("o = w[0]\n" + LOOP + "    o.append(h)\nreturn torch.stack(o)", STORED),
        ("d = {}\nd['h'] = []\n" + LOOP + "    d['h'].append(h)\nreturn d", STORED),
        ("o = [[] for _ in range(2)]\n" + LOOP + "    o[0].append(h)\nreturn o", STORED),
        ("d = {}\n" + LOOP + "    d[0, t] = h\nreturn d", STORED),
        ("d = {}\n" + LOOP + "    d[h] = t\nreturn d", STORED),
        ("b = w.data\n" + LOOP + "    w.add_(1)\nreturn h", SHARED),
        ("d = {'b': b.data}\n" + LOOP + "    d['b'][:, 3] += 5\nreturn h", SHARED),
        (
            (
                "def g():\n    for t in range(n):\n        b.data[:, t] += 1\n        yield t\n"
                "for t, k in enumerate(g()):\n    h = a[:, t] * h + b[:, t]\nreturn h"
            ),
            SHARED,
        ),
        (LOOP + "    w.append(locals())\nreturn h", "locals may read the state"),
        (LOOP + "    torch.distributed.all_reduce(h)\nreturn h", STORED),
        (
            "r = 0\n" + LOOP + "    match h:\n        case x:\n            r = x\nreturn r",
            "match statement",
        ),
        ("y = 0\n" + LOOP + "    k = h.T\n    k += 1\n    y = y + h.tanh()\nreturn y", IN_PLACE),
        (
            "y = 0\n" + LOOP + "    k = h.diagonal()\n    k[0] = 1\n    y = y + h.tanh()\nreturn y",
            IN_PLACE,
        ),
        ("for t in range(n):\n    w[t].wait()\n    h = a[:, t] * h + b[:, t]\nreturn h", "waits"),
        ("o = []\n" + LOOP + "    o.append(F.dropout(h, 0.0))\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(h.to(a.dtype))\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(h.contiguous())\nreturn o", STORED),
        ("o = []\n" + LOOP + "    o.append(torch.where(h.real > 0, h, 0 * h))\nreturn o", STORED),
        (
            (
                "m = (a.real > 0)\nfor t in range(n):\n    k = a[:, t] * h + b[:, t]\n"
                "    h = torch.where(m[:, t], k, h)\nreturn h"
            ),
            CARRIED,
        ),
        (
            "for t in range(n):\n    t = 3\n    h = a[:, t] * h + b[:, t]\nreturn h",
            "$step is not the number of a step of a loop",
        ),
        (
            ("if n < 0:\n    z = b\nfor t in range(0):\n    h = a[:, t] * h + z[:, t]\nreturn h"),
            "the tensor may not be bound before the loop",
        ),
        (
            (
                "y = 0\nfor t in range(n):\n    s = a[:, t]\n    h = s * h + b[:, t]\n"
                "    y = y + s * h\nreturn y"
            ),
            "the result of py.item is also used",
        ),
        (
            ("s = 0\nfor t in range(n):\n    s = a[:, t]\n    h = s * h + b[:, t]\nreturn s, h"),
            "the result of py.item is also used",
        ),
        (
            (
                "for t in range(n):\n    s = a[:, t]\n    s = s * 2\n"
                "    h = s * h + b[:, t]\nreturn h"
            ),
            "$a is computed inside the loop",
        ),
        (
            (
                "a = a * 1\nfor t in range(n):\n    s = a[:, t]\n    s *= 2\n"
                "    h = s * h + b[:, t]\nreturn h"
            ),
            "$a is computed inside the loop",
        ),
        (
            (
                "b = b * 1\nfor t in range(n):\n    u = b[:, t]\n    b[:, t] = 0\n"
                "    h = a[:, t] * h + u\nreturn h"
            ),
            CHANGED,
        ),
        (
            (
                "for t in range(n):\n    if t > 3:\n        s = a[:, t]\n    else:\n"
                "        s = a[:, 0]\n    h = s * h + b[:, t]\nreturn h"
            ),
            "an inner step is in another block",
        ),
        (
            (
                "for t in range(n):\n    s = a[:, t]\n    if t >= 0:\n"
                "        h = s * h + b[:, t]\nreturn h"
            ),
            CARRIED,
        ),
        (
            (
                "y = 0\nfor t in range(n):\n    p = a[:, t] * h\n    h = p + b[:, t]\n"
                "    y = y + p\nreturn y"
            ),
            "the input of add depends on which branch was taken",
        ),
        (
            (
                "y = []\nfor t in range(n):\n    s = a[:, t]\n    y.append(h * s)\n"
                "    h = s * h + b[:, t]\nreturn torch.stack(y)"
            ),
            "the result of py.item is also used",
        ),
        (
            "for t in range(n):\n    s = a[:, t]; h = s * h + b[:, t]\nreturn h",
            "several statements share a line",
        ),
        (
            (
                "for t in range(n):\n    s = a[:, t]\n    h = s * h + b[:, t]\n"
                "return h, sorted(locals())[0] and h"
            ),
            "the result of py.item is also used",
        ),
    ],
)
def test_other_loops_stay(rules: tuple[CompiledRule, ...], body: str, reason: str) -> None:
    text, reasons = rewritten(rules, body)
    assert text == HEAD + "".join(f"    {line}\n" for line in body.strip().split("\n"))
    assert reason in reasons
