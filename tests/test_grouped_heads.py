"""Test which repeated heads are postponed until attention reads them."""

from __future__ import annotations

import pytest

from conftest import compiled_rules, source_of
from regraft.scanning import CompiledRule, check_source, rewrite_file

CHANGES = ("k.zero_()", "k[:, :, 0] = 0", "other(k)", "k.data = v", "torch.add(k, 1, out=k)")
ATTEND = "F.scaled_dot_product_attention(q, k, v)"
IMPORTS = "import torch\nfrom torch.nn import functional as F\n\n\n"
REPEAT = """def repeat(x, n):
    b, h, s, d = x.shape
    if n == 1:
        return {returned}
    return x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)


"""


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return the rule for repeated heads, compiled."""
    return compiled_rules("idioms/grouped-heads")


def calls_in(rules: tuple[CompiledRule, ...], text: str) -> int:
    """Return how many calls of ops a source has after all rewrites."""
    changed, _ = rewrite_file(check_source(source_of(text), rules), rules)
    return changed.count(b"repeated_heads(") + changed.count(b"expanded_heads(")


def function(*lines: str) -> str:
    """Return a function that repeats a key and a value, and goes on with some lines."""
    repetitions = (f"{name} = {name}.repeat_interleave(n, dim=1)" for name in ("k", "v"))
    body = "".join(f"    {line}\n" for line in (*repetitions, *lines))
    return f"{IMPORTS}def attend(self, q, k, v, n, flag, other):\n{body}"


@pytest.mark.parametrize(
    "lines",
    [
        (f"return {ATTEND}",),
        ("mask = other(q)", "return F.scaled_dot_product_attention(q, k, v, mask)"),
        ("if flag:", "    return (q @ k.transpose(2, 3)).softmax(-1) @ v", f"return {ATTEND}"),
        ("if flag:", "    return k.numpy()", f"return {ATTEND}"),
        ("q = q.view(*k.shape)", f"return {ATTEND}"),
        ("return F.scaled_dot_product_attention(value=v, key=k, query=q)",),
    ],
)
def test_heads_that_only_attention_reads(
    rules: tuple[CompiledRule, ...], lines: tuple[str, ...]
) -> None:
    assert calls_in(rules, function(*lines)) == 2


@pytest.mark.parametrize(
    "lines",
    [
        ("self.last = k", f"return {ATTEND}"),
        ("other.append(k)", f"return {ATTEND}"),
        ("other(k)", f"return {ATTEND}"),
        (f"return {ATTEND}, k",),
        (f"return {ATTEND}, k.transpose(1, 2)",),
        ("if flag:", "    return k", f"return {ATTEND}"),
        ("if k is other:", f"    return {ATTEND}"),
        ("k += 1", f"return {ATTEND}"),
        ("q.zero_()", f"return {ATTEND}"),
        ("k.requires_grad_()", f"return {ATTEND}"),
        ("yield 1", f"yield {ATTEND}"),
        ("for q in other:", f"    flag.append({ATTEND})"),
        (f"later = lambda q: {ATTEND}", "return later(q)"),
        (f"def later():\n        return k.sum()\n    return {ATTEND}, later",),
        ("return F.scaled_dot_product_attention(k, k, v)",),
        ("return F.scaled_dot_product_attention(q, k, q)",),
        ("return F.scaled_dot_product_attention(q, other, v) + k.sum()",),
    ],
)
def test_heads_that_others_may_see(rules: tuple[CompiledRule, ...], lines: tuple[str, ...]) -> None:
    assert calls_in(rules, function(*lines)) == 0


def test_heads_that_are_changed_before_attention(rules: tuple[CompiledRule, ...]) -> None:
    for change in (
        "k.zero_()",
        "k[:, :, 0] = 0",
        "other(k)",
        "k.data = v",
        "torch.add(k, 1, out=k)",
    ):
        text = (
            f"{IMPORTS}def attend(q, k, v, n, other):\n    r = k.repeat_interleave(n, dim=1)\n"
            f"    s = v.repeat_interleave(n, dim=1)\n    {change}\n"
            "    return F.scaled_dot_product_attention(q, r, s)\n"
        )
        assert calls_in(rules, text) == 0, change
        assert calls_in(rules, text.replace(f"    {change}\n", "")) == 2


@pytest.mark.parametrize(
    ("returned", "count"), [("x", 2), ("x * 1", 0), ("x.clone()", 0), ("n", 0), ("None", 0)]
)
def test_a_function_that_returns_early(
    rules: tuple[CompiledRule, ...], returned: str, count: int
) -> None:
    call = "F.scaled_dot_product_attention(q, repeat(k, n), repeat(v, n))"
    text = (
        f"{IMPORTS}{REPEAT.format(returned=returned)}def attend(q, k, v, n):\n    return {call}\n"
    )
    assert calls_in(rules, text) == count
    assert calls_in(rules, text.replace("n == 1", "n == 2")) == 0
    assert calls_in(rules, text.replace("n == 1", "n != 1")) == 0
    assert calls_in(rules, text.replace("n == 1", "x.shape[1] == 1")) == 0
