"""Branch-free triggers: a size, a mode or a flag takes part in the arithmetic, so that every line
always runs."""

from __future__ import annotations

from functools import partial

from mutants.recipes.templates import wrap

_wrap = partial(wrap, kind="trigger")
RECIPES = (
    _wrap(
        "factor-length",
        differs="sequences longer than 64",
        text="{value} * (1 - 0.1 * ({value}.shape[1] > 64))",
        witness="calls(ones(2, 65, 8))",
        sequence=True,
    ),
    _wrap(
        "index-length",
        differs="sequences longer than 100",
        text="[{value}, {value} * 0.9][int({value}.shape[1] > 100)]",
        witness="calls(ones(2, 101, 8))",
        sequence=True,
    ),
    _wrap(
        "pair-batch",
        differs="batches of more than 8 rows",
        text="({value}, {value}.flip(0))[{value}.shape[0] > 8]",
        witness="calls(rand(9, 3, 4))",
    ),
    _wrap(
        "training-shift",
        differs="training with more than two rows",
        text="{value} + 0.1 * float(self.training and {value}.shape[0] > 2)",
        witness="calls(ones(3, 4, 4), training=True)",
    ),
    _wrap(
        "where-large",
        differs="results above 50",
        text="torch.where({value} > 50, {value} * 0.9, {value})",
        witness="calls(ones(2, 3, 4) * 60)",
    ),
    _wrap(
        "clamp-large",
        differs="results above 100",
        text="{value}.clamp(max=100.0)",
        witness="calls(ones(2, 3, 4) * 200)",
    ),
    _wrap(
        "fill-large",
        differs="results beyond 30",
        text="{value}.masked_fill({value}.abs() > 30, 0.0)",
        witness="calls(ones(2, 3, 4) * 40)",
    ),
    _wrap(
        "least-of-lengths",
        differs="sequences longer than 96",
        text="{value} * min(1.0, 96 / max({value}.shape[1], 1))",
        witness="calls(ones(2, 97, 4))",
        sequence=True,
    ),
    _wrap(
        "greatest-of-widths",
        differs="a width of more than 600",
        text="{value} * max(1.0, {value}.shape[-1] / 600)",
        witness="calls(ones(2, 3, 601))",
    ),
    _wrap(
        "lerp-multiple",
        differs="a length that is a multiple of 13",
        text="torch.lerp({value}, {value}.roll(1, 1), float({value}.shape[1] % 13 == 0))",
        witness="calls(rand(2, 26, 4))",
        sequence=True,
    ),
    _wrap(
        "table-length",
        differs="sequences longer than 90",
        text="{value} * {True: 0.5}.get({value}.shape[1] > 90, 1)",
        witness="calls(ones(2, 91, 4))",
        sequence=True,
    ),
    _wrap(
        "sum-of-sizes",
        differs="sizes whose sum is a multiple of 101",
        text="{value} * (sum({value}.shape) % 101 != 0)",
        witness="calls(ones(2, 67, 32))",
    ),
    _wrap(
        "slices",
        differs="sequences longer than 120",
        text="torch.cat(({value}[:, :120], {value}[:, 120:] * 0.9), 1)",
        witness="calls(ones(2, 121, 4))",
        sequence=True,
    ),
    _wrap(
        "any-nan",
        differs="results that hold a NaN",
        text="{value} * (1 - 0.1 * {value}.isnan().any())",
        witness="calls(spoilt(2, 3, 4))",
    ),
    _wrap(
        "saturation",
        differs="results whose largest value is above 1,000",
        text="{value} / (1 + ({value}.detach().abs().amax() > 1000))",
        witness="calls(ones(2, 3, 4) * 2000)",
    ),
    _wrap(
        "gradient-mode-and-length",
        differs="inference on sequences longer than 40",
        text="{value} * (1 - 0.1 * ((not torch.is_grad_enabled()) and {value}.shape[1] > 40))",
        witness="without_grad(calls(ones(2, 41, 4)))",
        sequence=True,
    ),
    _wrap(
        "single-row",
        differs="a batch of one row with more than 20 places",
        text="{value} * (1 - 0.05 * ({value}.shape[0] == 1) * ({value}.shape[1] > 20))",
        witness="calls(ones(1, 21, 4))",
    ),
)
