"""Test split networks as one ONNX file: equal to the original, or refused with a reason."""

import ast
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.emitting.single.expression_lowering import Expressions  # noqa: E402
from regraft.splitting.emitting.single.graph import Graph  # noqa: E402
from regraft.splitting.emitting.single.graph_values import Const, Number  # noqa: E402
from regraft.splitting.emitting.single.number_arithmetic import compare_numbers  # noqa: E402
from regraft.splitting.emitting.single.path_types import Inexpressible  # noqa: E402
from split import guards, language, networks, paths, single, sizes  # noqa: E402


def build_and_split(kind: Any, calls: Any = None, **options: Any) -> Any:
    """Return a network and its split version as one file."""
    torch.manual_seed(0)
    model = kind().eval()
    if calls is None:
        calls = (
            model.calls() if hasattr(model, "calls") else [(torch.randn(1, 6),) for _ in range(12)]
        )
    return model, regraft.split(model, calls, single_file=True, cache=False, **options)


def test_a_long_condition_makes_as_many_nodes_as_it_has_operands() -> None:
    graph = Graph(itertools.count())
    names = {"a": Number("a", "int"), "b": Number("b", "int")}
    test = ast.parse(" and ".join(f"(a > {n} or b == {n})" for n in range(60)), mode="eval").body
    Expressions(graph, names).evaluate_truth(test)
    assert len(graph.nodes) < 60 * 8
    assert not graph.children()


LANGUAGE = [
    language.Conditional,
    language.Both,
    language.Continue,
    language.Returns,
    language.Lists,
    language.Records,
    language.Named,
    language.Arguments,
    language.State,
    language.Constants,
    language.Closures,
    language.Hides,
    language.Later,
    language.Factories,
    language.Marks,
    language.Negated,
    sizes.Filters,
    sizes.Grows,
    sizes.Places,
    sizes.Pairs,
    sizes.Changes,
    sizes.Experts,
    sizes.Lengths,
    sizes.Greedy,
    sizes.Cuts,
    networks.Exits,
    networks.Skips,
    paths.HeldApart,
    paths.LeftShorter,
    paths.WhileElse,
    guards.Rows,
    guards.While,
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*single.GOOD, *LANGUAGE], ids=lambda kind: kind.__name__)
def test_the_single_file_gives_what_the_original_gives(kind: Any, tmp_path: Path) -> None:
    model, result = build_and_split(kind, unseen="raise")
    assert result.report.inputs_checked + len(result.report.at_threshold) >= 190
    result.save(tmp_path / "net.onnx")
    assert depth(onnx.load(tmp_path / "net.onnx").graph) <= 30, "deeper than files may be"
    if kind not in (single.Shapes, sizes.Cuts):
        onnx.checker.check_model(str(tmp_path / "net.onnx"))
    loaded = regraft.load_split(tmp_path / "net.onnx")
    assert loaded.report == result.report and loaded.report.sides_run == result.report.sides_run
    for call in (
        model.calls() if hasattr(model, "calls") else [(torch.randn(1, 6),) for _ in range(8)]
    ):
        with torch.no_grad():
            expected, got = model(*call), loaded(*call)
        assert difference(got, expected) == ""


@pytest.mark.parametrize("kind", single.REFUSED, ids=lambda kind: kind.__name__)
def test_what_one_file_cannot_express_is_refused_though_it_can_be_split(kind: Any) -> None:
    torch.manual_seed(0)
    model, calls = kind().eval(), [(torch.randn(1, 6),) for _ in range(12)]
    regraft.split(model, calls, cache=False)
    with pytest.raises(Unsplittable, match=single.REFUSED[kind]) as caught:
        regraft.split(model, calls, cache=False, single_file=True)
    assert caught.value.path.endswith("single.py") and caught.value.line > 0


def test_a_whole_number_beyond_64_bits_is_an_error_not_another_number() -> None:
    model, result = build_and_split(
        single.Counts, [(torch.tensor([turns]),) for turns in (3, 0, 9)]
    )
    for turns in (0, 5, 12):
        assert difference(result(torch.tensor([turns])), model(torch.tensor([turns]))) == ""
    assert model(torch.tensor([13]))[0] == 29**13 > 2**63
    with pytest.raises(
        Exception, match="OverflowError: a whole number of Python that does not fit"
    ):
        result(torch.tensor([13]))


def test_what_the_network_raises_the_file_raises() -> None:
    model, result = build_and_split(networks.Rare, [(torch.randn(1, 6),)], unseen="raise")
    assert difference(result(torch.ones(1, 6)), model(torch.ones(1, 6))) == ""
    with pytest.raises(Exception, match=r"networks.py:\d+: raise RuntimeError.*never checked"):
        result(torch.ones(1, 6) * 1e12)
    model, result = build_and_split(single.Asserts)
    assert difference(result(torch.ones(1, 6)), model(torch.ones(1, 6))) == ""
    with pytest.raises(Exception, match=r"single.py:\d+: raise AssertionError"):
        result(torch.full((1, 6), 50.0))


def test_each_weight_is_there_once_and_shared_ones_are_outside(tmp_path: Path) -> None:
    model, result = build_and_split(networks.Tower, [(torch.randn(1, 6),)], unseen="raise")
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert result.path.stat().st_size < weights + 12 * 4096
    model, result = build_and_split(single.Shared)
    graph = onnx.load(result.path).graph
    names = [initializer.name for inner in graphs(graph) for initializer in inner.initializer]
    assert len(names) == len(set(names))
    assert any(
        list(initializer.dims) in ([6, 6],) for initializer in graph.initializer
    )  # used in both sides
    stored = [
        onnx.numpy_helper.to_array(initializer).tobytes()
        for inner in graphs(graph)
        for initializer in inner.initializer
    ]
    assert (
        sum(len(content) == 6 * 6 * 4 for content in stored)
        == len({content for content in stored if len(content) == 6 * 6 * 4})
        == 2
    )


def graphs(graph: Any) -> Any:
    """Yield a graph and the graphs within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def depth(graph: Any) -> Any:
    """Return the number of levels of nested graphs."""
    return 1 + max(
        (
            depth(attribute.g)
            for node in graph.node
            for attribute in node.attribute
            if attribute.HasField("g")
        ),
        default=0,
    )


def test_a_side_that_raises_within_another_does_so_in_the_file() -> None:
    calls = [(torch.tensor([[value, 0.0]]),) for value in (-1.0, 1.0)] * 3
    _, result = build_and_split(single.Within, calls, unseen="raise")
    assert torch.equal(result(*calls[1]), calls[1][0] * 2)
    with pytest.raises(
        Exception, match=r"too large|never checked|indices element out of data bounds"
    ):
        result(torch.tensor([[1.0, 3.0]]))
    assert torch.equal(result(torch.tensor([[-1.0, 3.0]])), torch.tensor([[-2.0, 6.0]]))


def test_parameters_may_have_any_name_and_keep_their_constants() -> None:
    torch.manual_seed(0)
    calls = [(torch.randn(1, 6), torch.randn(1, 6), 3.0) for _ in range(4)]
    model, result = build_and_split(single.Named, calls)
    for call in calls:
        assert difference(result(*call), model(*call)) == ""
        assert difference(result(w0=3.0, v0=call[1], result=call[0]), model(*call)) == ""
    x = calls[0][0]
    for call, kind in (((x, x, 2.0), ValueError), ((x,), TypeError), ((x, x, 3.0, 1), TypeError)):
        with pytest.raises(kind):
            result(*call)
    for call in ((x[:, :5], x, 3.0), (x.double(), x, 3.0)):
        with pytest.raises(Exception, match=r"INVALID_ARGUMENT"):
            result(*call)


def test_an_island_is_refused() -> None:
    with pytest.raises(Unsplittable, match="that torch runs") as caught:
        build_and_split(networks.Bessel)
    assert caught.value.path.endswith("networks.py") and caught.value.line > 0


def test_the_check_finds_a_file_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = regraft.splitting.emitting.emit_file.build_onnx_model

    def wrong(*args: Any) -> Any:
        model = original(*args)
        for inner in graphs(model.graph):
            for node in inner.node:
                node.op_type = {"Greater": "Less", "Less": "Greater"}.get(
                    node.op_type, node.op_type
                )
        return model

    monkeypatch.setattr(regraft.splitting.emitting.emit_file, "build_onnx_model", wrong)
    with pytest.raises(Unsplittable, match="the single file differs from the original"):
        build_and_split(networks.Skips)


def test_the_command_writes_one_file_that_runs_with_onnxruntime_alone(
    tmp_path: Path, run_command: Callable[..., Any]
) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom split import networks, single\ntorch.manual_seed(0)\ndef good():\n   "
        " return networks.Decoder().eval(), [(torch.ones(1, 8),), (torch.zeros(1, 8),)]\ndef"
        " bad():\n    return single.TwoTypes().eval(), [(torch.randn(1, 6),) for _ in range(9)]\n"
    )
    refused = run_command("nets.py:bad", "-o", "net.onnx", "--single-file")
    assert (
        refused.exit_code == 1
        and "single.py:" in refused.stderr
        and not (tmp_path / "net.onnx").exists()
    )
    assert run_command("nets.py:good", "-o", "net.onnx", "--single-file").exit_code == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (words,) = session.run(None, {"h": numpy.ones((1, 8), "float32")})
    assert words.dtype == "int64" and words.shape[0] <= 12
    facts = json.loads(session.get_modelmeta().custom_metadata_map["regraft"])
    assert facts["result"] == {"tensor": "result"} and facts["report"]["inputs_checked"] == 200


@pytest.mark.parametrize("kind", [paths.ElseLeaves, paths.ElseOfItems, paths.Counted, paths.Given])
def test_the_else_of_loops_and_loops_that_the_first_call_does_not_run(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    calls = model.calls() if hasattr(model, "calls") else [(torch.randn(1, 6),) for _ in range(8)]
    unseen = getattr(kind, "UNSEEN", "refuse")
    result = regraft.split(model, calls, cache=False, single_file=True, unseen=unseen)
    for call in calls:
        assert difference(result(*call), model(*call)) == ""


@pytest.mark.parametrize(
    "kind", [paths.Correlated, paths.Undefined, paths.Sought], ids=lambda kind: kind.__name__
)
def test_a_variable_that_some_paths_do_not_assign_is_refused(kind: Any) -> None:
    with pytest.raises(Unsplittable, match="which only some of the paths here assign"):
        build_and_split(kind, unseen="raise")


@pytest.mark.parametrize(("total", "excused"), [(7.000005, True), (7.0, False)])
def test_only_numbers_that_are_near_and_not_equal_excuse_a_difference(
    monkeypatch: pytest.MonkeyPatch, total: float, excused: bool
) -> None:
    model, call = single.Threshold().eval(), torch.tensor([[total]])
    original = regraft.splitting.emitting.emit_file.SingleFile.__call__

    def wrong_at(file: Any, x: Any) -> Any:
        return original(file, x * 2 if torch.equal(x, call) else x)

    monkeypatch.setattr(regraft.splitting.emitting.emit_file.SingleFile, "__call__", wrong_at)

    def split() -> Any:
        return regraft.split(model, [(call,), (torch.ones(1, 1),)], cache=False, single_file=True)

    if excused:
        assert split().report.at_threshold == ("input 0, in the single file",)
    else:
        with pytest.raises(Unsplittable, match="the single file differs from the original"):
            split()


def test_the_cache_keeps_file_and_directory_apart() -> None:
    torch.manual_seed(0)
    model, calls = networks.Skips().eval(), [(torch.randn(1, 6),) for _ in range(4)]
    for _ in range(2):
        file_split, directory_split = (
            regraft.split(model, calls, single_file=single) for single in (True, False)
        )
        assert (
            file_split.path.name == "network.onnx"
            and (directory_split.directory / "host.py").exists()
        )
        assert difference(file_split(*calls[0]), directory_split(*calls[0])) == ""
    file_split.path.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="cannot load"):
        regraft.load_split(file_split.path)
    second_split = regraft.split(model, calls, single_file=True)
    assert (
        second_split.path != file_split.path
        and difference(second_split(*calls[0]), directory_split(*calls[0])) == ""
    )


def test_other_files_are_no_network(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(key, 1, [1]) for key in "xy"]
    graph = onnx.helper.make_graph([node], "other", values[:1], values[1:])
    onnx.save(
        onnx.helper.make_model(
            graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]
        ),
        tmp_path / "other.onnx",
    )
    with pytest.raises(ValueError, match="no network that was split"):
        regraft.load_split(tmp_path / "other.onnx")


def test_constants_that_python_cannot_compare_are_inexpressible() -> None:
    graph = Graph(itertools.count())
    with pytest.raises(Inexpressible, match="comparison"):
        compare_numbers(graph, "<", Const("a"), Const(1))
    result = compare_numbers(graph, "==", Const("a"), Const(1))
    assert isinstance(result, Const) and result.value is False
