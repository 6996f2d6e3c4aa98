"""Sizes of results on symbols, which several specialisations of one network ask for."""

from __future__ import annotations

import ast
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting import pipeline  # noqa: E402
from regraft.splitting.program.residual import Region  # noqa: E402
from regraft.splitting.program.size_questions import Describer, Questions  # noqa: E402
from regraft.splitting.program.symbolic_sizes import SymbolicSizes, Unknown  # noqa: E402
from regraft.splitting.program.values import HostValue, StaticValue, TensorValue  # noqa: E402
from regraft.splitting.sampling.decision_recorder import SideRecorder  # noqa: E402

MODULES = {"torch": torch, "layer": torch.nn.Linear(4, 6)}


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def rows(count: int) -> TensorValue:
    """Return a tensor of four columns with an open number of rows."""
    return TensorValue(torch.zeros(count, 4), expression("x"), torch.zeros(count + 3, 4))


def sizes_of(questions: Questions) -> SymbolicSizes:
    return SymbolicSizes(lambda names: {**MODULES, **names}, questions)


def ask(sizes: SymbolicSizes, text: str, names: dict[str, Any]) -> Any:
    try:
        return sizes.shapes(expression(text), names)
    except Unknown:
        return None


# in the order in which they are asked; some may raise, some cannot be answered
ASKED = (
    "x[:3]",
    "layer(x).split(3, dim=1)",
    "torch.cat([x, x])[:n]",
    "x.narrow(0, 0, 3)",
    "x[-6:].nonzero()",
    "x[:3] if x.sum() > 0 else x",
    "layer(x)[:, :2]",
)


def names_of(count: int) -> dict[str, Any]:
    """Return the names in `ASKED` as a call of `count` rows gives them."""
    return {"x": rows(count), "n": HostValue(count, expression("n"), count + 3)}


def test_the_second_specialisation_computes_nothing() -> None:
    questions = Questions()
    first, second = sizes_of(questions), sizes_of(questions)
    answers = [ask(first, text, names_of(7)) for text in ASKED]
    assert None in answers and ([(None, 4)], False) in answers
    assert any(answer is not None and answer[1] for answer in answers)
    assert [ask(second, text, names_of(9)) for text in ASKED] == answers
    assert first.mode is not None and second.mode is None


@pytest.mark.parametrize("known", range(len(ASKED)))
def test_a_new_question_is_answered_as_if_all_were_new(known: int) -> None:
    questions = Questions()
    earlier, later, alone = sizes_of(questions), sizes_of(questions), sizes_of(Questions())
    for text in ASKED[:known]:
        ask(earlier, text, names_of(7))
    for text in ASKED:
        assert ask(later, text, names_of(8)) == ask(alone, text, names_of(8))


def test_definitions_are_part_of_a_question() -> None:
    questions = Questions()
    for text, may_raise in (("x * 2", True), ("torch.cat([x, torch.zeros(3, 4)])", False)):
        sizes, names = sizes_of(questions), names_of(7)
        y = TensorValue(torch.zeros(10, 4), expression(text), torch.zeros(13, 4))
        sizes.define("y", y, names)
        answer = ask(sizes, "y.narrow(0, 0, 3)", {**names, "y": y})
        assert answer == ([(3, 4)], may_raise)


def describe(names: dict[str, Any], scope: dict[str, Any]) -> Any:
    return Describer().describe(expression("x + y"), names, {}, scope)


def test_what_differs_is_another_question() -> None:
    x, z = rows(7), torch.nn.Identity()
    different = [
        ({"x": x, "y": x}, {}),  # one tensor
        ({"x": x, "y": rows(7)}, {}),  # two
        ({"x": x, "y": TensorValue(torch.zeros(7, 4), x.code)}, {}),  # no open sizes
        ({"x": x, "y": TensorValue(torch.zeros(7, 4).long(), x.code, torch.zeros(9, 4))}, {}),
        ({"x": x, "y": TensorValue((x.example, x.example), x.code)}, {}),
        ({"x": x, "y": HostValue(7, x.code)}, {}),
        ({"x": x, "y": HostValue(7, x.code, constant=True)}, {}),
        ({"x": x, "y": HostValue(7.0, x.code)}, {}),
        ({"x": x, "y": HostValue(8.0, x.code)}, {}),
        ({"x": x, "y": StaticValue(7, x.code)}, {}),
        ({"x": x, "y": StaticValue(True, x.code)}, {}),
        ({"x": x, "y": StaticValue((1, 2), x.code)}, {}),
        ({"x": x}, {"y": z}),
        ({"x": x}, {}),
        *([({"x": x}, {"y": []})] * 2),  # what may change is no question that was asked before
    ]
    described = [describe(*pair) for pair in different]
    assert len(set(described)) == len(different)
    changing = [describe(*pair) for pair in different]
    assert described[:-2] == changing[:-2]
    assert not set(described[-2:]) & set(changing)


class Doubles(torch.nn.Module):
    """Stops after the first step or never."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = x * 2
            if x.sum() > 0:
                break
        return x


def test_no_loop_is_compiled_unrolled_of_which_a_side_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampled, compiled = [], []

    def sample_noted(*arguments: Any) -> Any:
        program, unreached = sample_regions(*arguments)
        sampled.append([(len(r.samples), len(r.further)) for r in program.regions])
        return program, unreached

    def compile_noted(program: Any, *arguments: Any) -> Any:
        compiled.append([(len(r.samples), len(r.further)) for r in program.regions])
        return compile_network(program, *arguments)

    sample_regions, compile_network = pipeline.sample_regions, pipeline.compile_network
    monkeypatch.setattr(pipeline, "sample_regions", sample_noted)
    monkeypatch.setattr(pipeline, "compile_network", compile_noted)
    calls = [(torch.ones(3),), (-torch.ones(3),)]
    result = regraft.split(Doubles().eval(), calls, cache=False, measure=False)
    assert len(sampled) == 2
    assert compiled == sampled[1:]  # once, with the samples that there were
    assert all(torch.equal(result(*call), Doubles()(*call)) for call in calls)


def test_no_sample_is_added_where_sides_are_looked_for() -> None:
    region = Region(0, [], ("x",), (), ("network.py", 1))
    region.open = (frozenset({0}),)
    recorder = SideRecorder("network.py", [region], [], {})
    recorder.add_sample(region, (torch.zeros(3),))
    assert region.samples == [] and region.further == []
    region.samples.append((torch.zeros(3),))
    recorder.add_sample(region, (torch.zeros(4),))
    assert len(region.samples) == 1 and region.further == []
    with pytest.raises(regraft.Unsplittable, match="several shapes"):
        recorder.add_sample(region, (torch.zeros(4).long(),))
