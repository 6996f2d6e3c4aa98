"""Test calls of attention layers: their arguments by the signature of `forward`, and whether only
the output is used."""

from __future__ import annotations

import pytest

from conftest import compiled_rules, source_of
from regraft.scanning import CompiledRule, check_source, rewrite_file

HEAD = """from torch import nn


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, 4)

    def forward(self, x, y, mask, flag):
"""


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return the rule for attention weights, compiled."""
    return compiled_rules("idioms/need-weights")


def rewritten(rules: tuple[CompiledRule, ...], body: str) -> str:
    """Return the lines of a `forward` after all rewrites."""
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    changed, _ = rewrite_file(check_source(source_of(HEAD + lines), rules), rules)
    body_lines = changed.decode().split("mask, flag):\n", 1)[1].splitlines()
    return "\n".join(line.removeprefix("        ") for line in body_lines)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("x, y, y", "x, y, y, self.attn"),
        ("query=x, value=y, key=x", "x, x, y, self.attn"),
        ("x, y, y, mask", "x, y, y, self.attn, key_padding_mask=mask"),
        ("x, y, y, None, True, mask", "x, y, y, self.attn, attn_mask=mask"),
        ("x, y, y, need_weights=True, attn_mask=mask", "x, y, y, self.attn, attn_mask=mask"),
        (
            "x, y, y, attn_mask=mask, is_causal=flag",
            "\n    x, y, y, self.attn, attn_mask=mask, is_causal=flag\n",
        ),
    ],
)
def test_spellings_of_a_call(rules: tuple[CompiledRule, ...], call: str, arguments: str) -> None:
    body = f"return self.attn({call})[0]"
    assert rewritten(rules, body) == f"return attention_without_weights({arguments})[0]"


@pytest.mark.parametrize(
    "call",
    [
        "x, y, y, need_weights=False",
        "x, y, y, None, False",
        "x, y, y, need_weights=flag",
        "x, y, y, average_attn_weights=False",
        "x, y",
        "x, y, y, x, True, mask, True, False, y",
        "x, y, y, query=x",
        "x, y, y, scale=2",
        "*x",
        "x, y, y, **flag",
    ],
)
def test_calls_that_stay(rules: tuple[CompiledRule, ...], call: str) -> None:
    body = f"return self.attn({call})[0]"
    assert rewritten(rules, body) == body


CALL, KERNEL = "self.attn(x, x, x)", "attention_without_weights(x, x, x, self.attn)"


@pytest.mark.parametrize(
    "body",
    [
        "out, _ = CALL\nreturn x + out",
        "(out, weights) = CALL\nreturn x + out",
        "result = CALL\nreturn result[0] + result[0]",
        "for _ in range(flag):\n    x, weights = CALL\nreturn x",
        "if flag:\n    x, weights = CALL\nreturn x",
        "CALL\nreturn x",
    ],
)
def test_only_the_output_is_used(rules: tuple[CompiledRule, ...], body: str) -> None:
    assert rewritten(rules, body.replace("CALL", CALL)) == body.replace("CALL", KERNEL)


@pytest.mark.parametrize(
    "body",
    [
        "return CALL",
        "return CALL[1]",
        "return CALL[-1]",
        "return CALL[flag]",
        "return CALL[:1]",
        "return [*CALL][0]",
        "out, weights = CALL\nreturn out, weights",
        "out, weights = CALL\nreturn out if flag else weights",
        "out, self.weights = CALL\nreturn out",
        "out, y[0] = CALL\nreturn out",
        "out, *rest = CALL\nreturn out",
        "out, weights = CALL\nreturn lambda: weights",
        "out, weights = CALL\nreturn out, locals()",
        "out, weights = CALL\nreturn [out for _ in weights]",
        "out, weights = CALL\ndel weights\nreturn out",
        "out, (a, b) = CALL\nreturn out + a",
        "result = CALL\nflag.append(result)\nreturn result[0]",
        "result = CALL\nprint(result)\nreturn result[0]",
        "result = CALL\nout, weights = result\nreturn out + result[1]",
        "result = CALL if flag else (x, y)\nreturn result[1]",
        "for _ in range(flag):\n    x, weights = CALL\nreturn x, weights",
        "try:\n    x, weights = CALL\nexcept ValueError:\n    weights = x\nreturn weights",
        "global weights\nout, weights = CALL\nreturn out",
        "match flag:\n    case 1:\n        x, weights = CALL\n        return weights",
        "for y in CALL:\n    pass\nreturn y",
    ],
)
def test_the_weights_are_used(rules: tuple[CompiledRule, ...], body: str) -> None:
    body = body.replace("CALL", CALL)
    assert rewritten(rules, body) == body
