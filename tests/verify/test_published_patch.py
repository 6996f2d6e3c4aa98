"""Test that a patch as published in a paper comes out refuted: Adopter (ISSTA 2024), Figure 5, the
residual unit of DPT.

The published patch calls `batch_norm2` outside of `if self.use_batch_norm`, and the fused layers
are built without the channel counts, the padding and the `bias` option of the layers that they
replace.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.verification import verify

pytest.importorskip("torch")
UNIT = "class DPTPreActResidualLayer(nn.Module):"
BRANCH = (
    "        if self.use_batch_norm:\n            hidden_state = self.batch_norm{0}(hidden_state)\n"
)
CONV = """        self.convolution{0} = nn.Conv2d(
            config.fusion_hidden_size,
            config.fusion_hidden_size,
            kernel_size=3,
            stride=1,
            padding=1,
            bias=use_bias_in_fusion_residual,
        )
"""
OUTSIDE = (BRANCH.format(2), "        hidden_state = self.batch_norm2(hidden_state)\n")
OPTIONS_LOST = (
    CONV.format(1),
    (
        "        self.convolution1 = nn.Conv2d(config.fusion_hidden_size,"
        " config.fusion_hidden_size, 3)\n"
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "edits",
    [(OUTSIDE, OPTIONS_LOST), (OUTSIDE,), (OPTIONS_LOST,)],
    ids=["both", "branch", "options"],
)
def test_the_published_patch_of_dpt_is_refuted(
    edits: tuple[tuple[str, str], ...],
    transformers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = transformers / "models" / "dpt" / "modeling_dpt.py"
    before, unit, tail = path.read_text("utf-8").partition(UNIT)
    for old, new in edits:
        assert tail.count(old) == 1
        tail = tail.replace(old, new)
    (verdict,) = verify(path, (before + unit + tail).encode())
    assert (verdict.definition, verdict.status) == (
        "DPTPreActResidualLayer",
        "refuted",
    ), verdict.reason
    assert Path(str(verdict.evidence["reproducer"])).is_file()
    if edits == (OUTSIDE,):  # the input shows, and what it runs into
        assert "batch_norm2" in verdict.reason
        assert "shapes [[" in verdict.reason
