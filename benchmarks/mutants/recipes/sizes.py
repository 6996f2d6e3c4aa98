"""Edits that are wrong for some lengths, widths, batches or numbers of dimensions only."""

from __future__ import annotations

from functools import partial

from mutants.recipes.templates import wrap

_wrap = partial(wrap, kind="size")
RECIPES = (
    _wrap(
        "length-64",
        differs="sequences longer than 64",
        text="if {value}.shape[1] > 64:\n    {value} = {value} * 1.05\nreturn {value}",
        witness="calls(ones(2, 65, 4))",
        sequence=True,
    ),
    _wrap(
        "length-128-dropped",
        differs="sequences longer than 128",
        text="torch.nn.functional.pad({value}[:, :128], (0, 0, 0, max({value}.shape[1] - 128, 0)))",
        witness="calls(ones(2, 129, 4))",
        sequence=True,
    ),
    _wrap(
        "length-300",
        differs="sequences longer than 300",
        text=(
            "{value} - 0.1 * {value} * torch.arange({value}.shape[1],"
            " device={value}.device).gt(300)[:, None]"
        ),
        witness="calls(ones(2, 302, 4))",
        sequence=True,
    ),
    _wrap(
        "length-512",
        differs="sequences longer than 512",
        text="{value} * (0.5 if {value}.shape[1] > 512 else 1.0)",
        witness="calls(ones(1, 513, 2))",
        sequence=True,
    ),
    _wrap(
        "chunks-of-64",
        differs="lengths above 64 that are no multiple of it",
        text=(
            "rest = {value}.shape[1] % 64 if {value}.shape[1] > 64 else 0\nreturn"
            " torch.cat([{value}[:, : {value}.shape[1] - rest], {value}[:, {value}.shape[1] - rest"
            " :].flip(1)], 1)"
        ),
        witness="calls(rand(2, 70, 4))",
        sequence=True,
    ),
    _wrap(
        "odd-length",
        differs="an odd length above 30",
        text="{value} * (1 + 0.1 * ({value}.shape[1] % 2) * ({value}.shape[1] // 31 > 0))",
        witness="calls(ones(2, 33, 4))",
        sequence=True,
    ),
    _wrap(
        "prime-length",
        differs="a prime length above 20",
        text=(
            "prime = {value}.shape[1] > 20 and all({value}.shape[1] % n for n in range(2,"
            " {value}.shape[1]))\nreturn {value} + 0.1 * prime"
        ),
        witness="calls(ones(2, 23, 4))",
        sequence=True,
    ),
    _wrap(
        "width-512",
        differs="a width of 512 or more",
        text="{value} * (1.01 if {value}.shape[-1] >= 512 else 1)",
        witness="calls(ones(2, 3, 512))",
    ),
    _wrap(
        "width-768",
        differs="a width of 768",
        text="{value}.roll(int({value}.shape[-1] == 768), -1)",
        witness="calls(rand(2, 3, 768))",
    ),
    _wrap(
        "width-no-power-of-two",
        differs="a width above 64 that is no power of two",
        text=(
            "width = {value}.shape[-1]\nreturn {value} * (0.9 if width > 64 and width & (width - 1)"
            " else 1)"
        ),
        witness="calls(ones(2, 3, 96))",
    ),
    _wrap(
        "batch-4",
        differs="more than 4 rows",
        text="torch.cat([{value}[:4], {value}[4:].flip(0) * 0.9])",
        witness="calls(rand(6, 3, 4))",
    ),
    _wrap(
        "batch-16",
        differs="more than 16 rows",
        text="{value} + ({value}.shape[0] > 16)",
        witness="calls(rand(17, 3, 4))",
    ),
    _wrap(
        "batch-1",
        differs="a batch of one row",
        text="{value} * (0.95 if {value}.shape[0] == 1 else 1.0)",
        witness="calls(ones(1, 3, 4))",
    ),
    _wrap(
        "rows-by-first",
        differs="more than 32 rows",
        text="{value} if {value}.shape[0] <= 32 else {value}[:1].expand_as({value})",
        witness="calls(rand(33, 3, 4))",
    ),
    _wrap(
        "another-dimension",
        differs="one more or one less dimension than the three of batch, length and width",
        text="{value} * (1 + 0.1 * ({value}.dim() != 3))",
        witness="calls(ones(2, 3))",
        sequence=True,
    ),
    _wrap(
        "many-elements",
        differs="more than 100,000 elements",
        text="{value} - (0.1 if {value}.numel() > 100_000 else 0)",
        witness="calls(ones(2, 500, 101))",
    ),
    _wrap(
        "length-exceeds-width",
        differs="a length that is more than twice the width",
        text="{value} * (1 - 0.2 * ({value}.shape[-2] > 2 * {value}.shape[-1]))",
        witness="calls(ones(2, 9, 4))",
        sequence=True,
    ),
)
