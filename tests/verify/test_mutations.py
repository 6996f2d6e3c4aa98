"""Test sabotaged rewrites: none may be called proved; a few right ones are controls that must
be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from mutations.hugging_face import FILES as HUGGING_FACE
from mutations.mutation import Mutation, rounds
from mutations.tables import FILES

from regraft.verification import verify
from regraft.verification.types import Effort

pytest.importorskip("torch")
HERE = Path(__file__).parent / "mutations"


def disagreements(
    path: Path, text: str, group: tuple[Mutation, ...], driver: str | None = None
) -> dict[str, str]:
    """Return the verdicts on mutations that differ from the expected ones; low effort is enough
    for wrong ones."""
    for mutation in group:
        text = mutation.apply(text)
    effort: Effort = "default" if any(m.expected == "proved" for m in group) else "low"
    verdicts = {
        verdict.definition: verdict
        for verdict in verify(path, text.encode(), driver=driver, effort=effort)
    }
    return {
        mutation.why: f"{verdict.status}: {verdict.reason}"
        for mutation in group
        if (verdict := verdicts[mutation.definition]).status != mutation.expected
        or mutation.reason not in verdict.reason
    }


def groups(files: Mapping[str, tuple[Mutation, ...]]) -> Iterator[object]:
    """Yield the parameters of a test: mutations of one of these files that one run can verify."""
    for name, mutations in files.items():
        for number, group in enumerate(rounds(mutations)):
            yield pytest.param(name, group, id=f"{name}-{number}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "group"), list(groups(FILES)))
def test_every_verdict_is_the_expected_one(
    name: str, group: tuple[Mutation, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # reproducers are written below the working directory
    text = (HERE / "models" / f"{name}.py").read_text("utf-8")
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    assert not disagreements(path, text, group, f"{HERE / 'drivers.py'}:{name}")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "group"), list(groups(HUGGING_FACE)))
def test_real_models(
    model: str,
    group: tuple[Mutation, ...],
    transformers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = transformers / "models" / model / f"modeling_{model}.py"
    assert not disagreements(path, path.read_text("utf-8"), group)
