"""Test networks that decide by values: split, compared, saved, run without torch; ill-formed ones
are refused."""

import copy
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking import rounding_test  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.checking.rounding_test import is_rounding  # noqa: E402
from split import (  # noqa: E402
    attributes,
    beyond,
    guards,
    illformed,
    language,
    networks,
    ordinary,
    paths,
    sizes,
    states,
)


def build_model_and_calls(name: Any, seed: Any = 0) -> Any:
    """Return a network and its calls."""
    torch.manual_seed(seed)
    model = getattr(networks, name)().eval()
    return model, [(torch.randn(1, 8 if name == "Decoder" else 6),) for _ in range(4)]


@pytest.mark.parametrize(
    ("name", "most"), [("Exits", 4), ("Skips", 10), ("Decoder", 2), ("Experts", 11)]
)
def test_a_split_network_gives_what_the_original_gives(name: str, most: int) -> None:
    model, calls = build_model_and_calls(name)
    result = regraft.split(model, calls)
    assert result.report.subnetworks <= most and result.report.inputs_checked == 200
    for _ in range(30):
        x = torch.randn(calls[0][0].shape) * 2
        with torch.no_grad():
            torch.testing.assert_close(result(x), model(x), rtol=1e-4, atol=1e-4)


def test_the_directory_runs_without_torch_and_is_checked_when_loaded(tmp_path: Path) -> None:
    model, calls = build_model_and_calls("Skips")
    regraft.split(model, calls).save(tmp_path / "net")
    x = calls[0][0]
    torch.testing.assert_close(
        regraft.load_split(tmp_path / "net")(x)[0], model(x)[0].detach(), rtol=1e-4, atol=1e-4
    )
    program = (
        "import sys; sys.modules['torch'] = sys.modules['regraft'] = None; import numpy; from host"
        f" import Host;print(Host().forward(numpy.array({x.tolist()}, dtype='float32'))[1])"
    )
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONSAFEPATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "net",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str(model(x)[1])
    with (tmp_path / "net" / "model_0.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="model_0"):
        regraft.load_split(tmp_path / "net")


def classes(module: Any) -> Any:
    """Return the network classes that a module defines."""
    return [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, torch.nn.Module)
        and member.__module__ == module.__name__
    ]


@pytest.mark.parametrize("kind", classes(language))
def test_the_language(kind: Any) -> None:
    torch.manual_seed(0)
    report = regraft.split(kind().eval(), [(torch.randn(1, 6),) for _ in range(8)]).report
    assert (
        report.inputs_checked in (50, 200)
        and report.sides_run == report.sides
        and not report.islands
    )


def test_what_the_network_raises() -> None:
    torch.manual_seed(0)
    result = regraft.split(
        language.Refuses().eval(), [(torch.randn(1, 6).clamp(max=2),) for _ in range(8)]
    )
    with pytest.raises(ValueError, match=r"too large for \(1, 6\)"):
        result(torch.full((1, 6), 9.0))


def equal_on_calls(kind: Any, number: Any, **options: Any) -> Any:
    """Split a network, compare it on its own calls or on so many random ones, and return its
    report."""
    torch.manual_seed(0)
    model = kind().eval()
    calls = (
        model.calls() if hasattr(model, "calls") else [(torch.randn(1, 6),) for _ in range(number)]
    )
    result = regraft.split(model, calls, cache=False, **options)
    assert result.report.inputs_checked == 200 and not result.report.islands
    for call in calls:
        assert difference(result(*call), model(*call)) == ""
    return result.report


@pytest.mark.parametrize("kind", classes(paths))
def test_variables_of_some_paths_and_ways_out_of_loops(kind: Any) -> None:
    equal_on_calls(kind, 8, unseen=getattr(kind, "UNSEEN", "refuse"))


@pytest.mark.parametrize(
    "kind", [network for network in classes(ordinary) if issubclass(network, language.Layers)]
)
def test_ordinary_code(kind: Any) -> None:
    report = equal_on_calls(kind, 24)
    assert report.sides_run == report.sides


@pytest.mark.parametrize(
    "kind", [network for network in classes(states) if issubclass(network, language.Layers)]
)
def test_state_in_objects_and_constants_that_decide(kind: Any) -> None:
    report = equal_on_calls(kind, 24)
    assert report.sides_run == report.sides and report.sides > 0


def test_a_layer_of_torch_that_decides_by_values() -> None:
    torch.manual_seed(0)
    model, calls = (
        ordinary.Predicts().eval(),
        [(torch.randn(2, 6) * scale,) for scale in (0.1, 1, 3, 10) * 10],
    )
    result = regraft.split(model, calls, cache=False, unseen="raise")
    assert result.report.sides_run >= 4
    for call in calls:
        assert difference(result(*call), model(*call)) == ""


def test_another_example_is_followed_where_one_cannot_be() -> None:
    torch.manual_seed(0)
    calls = [(-torch.ones(1, 6),), *((torch.randn(1, 6),) for _ in range(12))]
    result = regraft.split(ordinary.Empty().eval(), calls, cache=False)
    assert result.report.sides == 2 and difference(result(*calls[0]), -torch.ones(1, 6)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [ordinary.Named, ordinary.Data, ordinary.Output, ordinary.Ordered, ordinary.Plain]
)
def test_objects_that_forward_returns(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, calls = kind().eval(), [(torch.randn(1, 6),) for _ in range(12)]
    directory = regraft.split(model, calls, cache=False)
    directory.save(tmp_path / "net")
    file = regraft.split(model, calls, cache=False, single_file=True)
    file.save(tmp_path / "net.onnx")
    batch = regraft.split(model, calls, cache=False, batched=True)(
        torch.cat([calls[0][0], calls[1][0]])
    )
    for result, loaded in (
        (directory, regraft.load_split(tmp_path / "net")),
        (file, regraft.load_split(tmp_path / "net.onnx")),
    ):
        for call, alone in zip(calls, batch, strict=False):
            expected = model(*call)
            for got in (result(*call), loaded(*call), alone):
                assert (
                    type(got).__name__ == type(expected).__name__
                    and difference(got, expected) == ""
                )
                attributes = (
                    dict(expected) if kind is ordinary.Ordered else ordinary.attributes(expected)
                )
                result_attributes = (
                    dict(got) if kind is ordinary.Ordered else ordinary.attributes(got)
                )
                assert result_attributes.keys() == attributes.keys()
                if kind is ordinary.Output:
                    assert list(got) == list(expected) and torch.equal(got[0], got["logits"])
                    assert got[:1][0] is got.logits


@pytest.mark.parametrize(
    "kind", [network for network in classes(guards) if network is not guards.Guarded]
)
def test_the_left_side_of_and_and_or_guards_the_right_one(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, model.calls(), cache=False)
    assert result.report.sides_run == result.report.sides and not result.report.islands
    assert result.report.subnetworks <= 3 or kind is not guards.Cheap
    for x in model.others():
        assert difference(result(x), model(x)) == ""


@pytest.mark.parametrize(
    "kind", [network for network in classes(attributes) if issubclass(network, language.Layers)]
)
def test_attributes_that_a_call_assigns(kind: Any) -> None:
    assert equal_on_calls(kind, 30).not_left


class Unused(torch.nn.Module):
    """A variable without a value is read, for nothing; each of these is decided by itself in the
    example calls."""

    def __init__(self, last: Any) -> None:
        super().__init__()
        self.last = last

    def forward(self, x: Any) -> Any:
        if x[0, 0] != 7:
            y = x + 1
        if x[0, 1] == 5:
            if self.last == "dead":
                z = y + 1  # noqa: F841
            elif self.last == "shape":
                return x * y.shape[1]
            elif self.last == "none":
                return x if y is None else x + 1
            elif self.last == "changed":
                y += 4
            return x * 2
        return x


@pytest.mark.parametrize("last", ["dead", "shape", "none", "changed"])
def test_reading_a_variable_without_a_value_raises_also_where_nothing_needs_it(last: str) -> None:
    calls = [
        (torch.zeros(1, 6),),
        (torch.tensor([[7.0, 0, 0, 0, 0, 0]]),),
        (torch.tensor([[0, 5.0, 0, 0, 0, 0]]),),
    ]
    model = Unused(last).eval()
    result, both = regraft.split(model, calls), torch.tensor([[7.0, 5, 0, 0, 0, 0]])
    for network in (model, result):
        with pytest.raises(UnboundLocalError):
            network(both)


class Deleted(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        y = x + 1
        if x[0, 0] == 7:
            del y
        return x + y if x[0, 1] == 5 else x


class Stale(torch.nn.Module):
    """A network in which a function's variable has no value from the iteration before."""

    def helper(self, x: Any, p: Any) -> Any:
        if p[0, 0] != 7:
            y = 4
        return x + y if p[0, 1] == 5 else x

    def forward(self, x: Any) -> Any:
        i, p = 0, x
        while i < 3:
            x = self.helper(x, p)
            p, i = p + 2, i + 1 if x.sum() < 999 else i + 2
        return x


@pytest.mark.parametrize(
    ("kind", "why"),
    [(Deleted, "y is not defined on this path"), (Stale, "in a function that a loop calls")],
)
def test_a_variable_that_the_host_would_still_hold_is_refused(kind: Any, why: str) -> None:
    with pytest.raises(Unsplittable, match=why):
        regraft.split(kind().eval(), [(torch.zeros(1, 6),), (torch.full((1, 6), 0.5),)])


def test_numbers_that_python_computes_are_not_frozen() -> None:
    model = paths.Frozen().eval()
    result = regraft.split(model, model.calls(), unseen="raise")
    for value in (50.0, 3.0, 100.0, -7.0):
        assert difference(result(torch.full((1, 6), value)), model(torch.full((1, 6), value))) == ""


def test_a_variable_that_this_path_does_not_assign_raises_as_in_the_original() -> None:
    model = paths.Undefined().eval()
    call = torch.tensor([[9.0, -90, 0, 0, 0, 0]])
    result = regraft.split(model, model.calls())
    for network in (model, result):
        with pytest.raises(UnboundLocalError):
            network(call)


# sizes that regions take as they come
OPEN = (
    sizes.Filters,
    sizes.Grows,
    sizes.Experts,
    sizes.Lengths,
    sizes.Greedy,
    sizes.Cuts,
    sizes.Repeats,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", classes(sizes))
def test_sizes_that_values_decide(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, model.calls())
    assert result.report.inputs_checked == 200 and not result.report.islands
    regions = json.loads((result.directory / "manifest.json").read_text())["regions"]
    assert any(None in entry["shape"] for region in regions for entry in region["inputs"]) == (
        kind in OPEN
    )
    for call in model.calls():
        torch.testing.assert_close(result(*call), model(*call), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "kind",
    [network for network in classes(beyond) if network not in (beyond.Beyond, beyond.OfAPool)],
)
def test_what_no_example_shows(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(model, model.calls())
    for x in (*model.rare(), *(call[0] for call in model.calls())):
        torch.testing.assert_close(result(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_a_number_that_has_to_be_a_constant() -> None:
    torch.manual_seed(0)
    model = beyond.OfAPool().eval()
    with pytest.raises(Unsplittable, match=r"beyond\.py:\d\d.*torch\.export cannot take it either"):
        regraft.split(model, model.calls())


@pytest.mark.slow
def test_equal_blocks_are_one_model_with_their_own_weights(tmp_path: Path) -> None:
    model, _ = build_model_and_calls("Tower", seed=3)
    result = regraft.split(model, [(1.3 * torch.randn(1, 6),) for _ in range(300)])
    assert (result.report.subnetworks, result.report.models) == (12, 1)
    result.save(tmp_path)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert sorted(path.name for path in tmp_path.glob("*.onnx")) == ["model_0.onnx"]
    assert weights <= (tmp_path / "weights.bin").stat().st_size <= 1.1 * weights
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"weights\.bin"):
        regraft.load_split(tmp_path)


def test_what_the_compiler_cannot_take_stays_eager_and_is_reported(tmp_path: Path) -> None:
    model, calls = build_model_and_calls("Bessel")
    result = regraft.split(model, calls)
    (reason,) = result.report.islands
    assert "networks.py:" in reason and "bessel_j0" in reason and result.report.subnetworks == 2
    result.save(tmp_path)
    loaded = regraft.load_split(tmp_path)
    assert loaded.report == result.report and "import torch" in (tmp_path / "host.py").read_text()
    for x in torch.randn(20, 1, 6):
        torch.testing.assert_close(loaded(x), model(x).detach())


def bare_environment(place: Any) -> Any:
    """Return the interpreter of an environment with nothing but NumPy and ONNX Runtime."""
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for name in ("numpy", "onnxruntime"):
        package = pathlib.Path(importlib.util.find_spec(name).origin).parent
        for folder in (package, package.parent / f"{name}.libs"):
            if folder.exists():
                (site / folder.name).symlink_to(folder)
    return place / "bin" / "python"


@pytest.mark.skipif(os.name == "nt", reason="builds its environment with symbolic links")
def test_the_directory_runs_where_only_numpy_and_onnxruntime_are_installed(tmp_path: Path) -> None:
    model, calls = build_model_and_calls("Decoder")
    call, python = calls[0], bare_environment(tmp_path / "env")
    regraft.split(model, calls).save(tmp_path / "net")
    program = (
        "import importlib.util; assert not any(map(importlib.util.find_spec, ('torch', 'onnx',"
        " 'regraft', 'pip')));import numpy; from host import Host; x ="
        f" numpy.array({call[0].tolist()}, dtype='float32');print(Host().forward(x).tolist())"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, "-c", program]
    run = subprocess.run(
        command, cwd=tmp_path / "net", env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(model(*call).tolist())


@pytest.mark.skipif(os.name == "nt", reason="builds its environment with symbolic links")
def test_the_host_names_the_package_that_is_missing(tmp_path: Path) -> None:
    model, calls = build_model_and_calls("Skips")
    python = bare_environment(tmp_path / "env")
    next(tmp_path.glob("env/lib/python*/site-packages/onnxruntime")).unlink()
    regraft.split(model, calls).save(tmp_path / "net")
    sentence = (
        "the network needs the package onnxruntime, which is not installed here: pip install"
        " onnxruntime"
    )
    for arguments in (["host.py"], ["-c", "import host"]):
        run = subprocess.run(
            [python, *arguments],
            cwd=tmp_path / "net",
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 1
        is_script = arguments == ["host.py"]
        expected = sentence if is_script else f"ModuleNotFoundError: {sentence}"
        assert run.stderr.splitlines()[-1] == expected
        assert ("Traceback" in run.stderr) is not is_script


REFUSED = {
    "OwnError": "Python's own",
    "ErrorOfValues": "values of tensors",
    "Noise": "random",
    "Seeds": "random",
    "Dropout": "random",
    "InPlace": "changed",
    "Tries": "try is supported only around what is known",
    "TriesTensor": "try is supported only around what is known",
    "TriesNumber": "try is supported only around what is known",
    "TriesUnused": "try is supported only around what is known",
    "TriesBreak": "break and continue in try",
    "Precise": "with is supported",
    "SortsTensors": r"sort\(\) of tensors",
    "PrintsToFile": "to a file",
    "MissingImport": "this import fails: ModuleNotFoundError",
    "Yields": "generator",
    "Awaits": "coroutine",
    "Mixed": "different types",
    "Shown": "total has different types",
    "Walrus": "is not supported here",
    "Unpacked": "known at run time only",
    "LambdaInATable": "written with def",
    "LambdaInADictionary": "a lambda in a comprehension is not supported",
    "Unpacks": "cannot be unpacked",
    "TakenName": "something else has this name",
    "Alias": "total is changed in place",
    "Largest": "not single values",
    "Ragged": "different types",
    "Stars": r"\*",
    "Starred": "unpacked",
    "Lambdas": "lambda in a comprehension",
    "Globals": "Global",
    "Inner": "decorators",
    "Unbound": "y is not defined on this path",
    "Clock": "call of 'time' cannot be followed",
    "HiddenClock": "gives something else each time",
    "Reads": r"open\(\)",
    "Forever": "4096 iterations",
    "Recursive": "too deeply",
    "View": "row is changed in place",
    "Shares": "y is changed in place",
    "Around": "y is changed in place",
    "Shared": "append changes a list",
    "Turned": "changes within an expression",
    "Targets": "changes within an expression",
    "Twice": "target of an augmented",
    "Unassigned": "names is not defined on this path",
    "Keyed": "known only at run time",
    "Differs": "differs between the paths",
    "Disorder": "changes within an expression",
    "Given": "the host cannot make",
    "Opaque": r"vars\(\)",
    "Magic": "call of 'Computed' cannot be followed",
    "Missing": "has no attribute total",
    "Relinks": "step has different types",
    "Which": "different types or shapes",
    "Operands": "by an expression that reads it",
    "Returns": "returns a Result",
    "Hidden": r"attribute calls of inner.1 \(Counter\)",
    "Truths": "not a single whole number",
    "Close": "may differ in shape",
    "Several": "the example call fails: TypeError",
    "Fraction": "is read inside a call",
    "Product": "anything but numbers",
    "Late": "known only at run time",
    "Outer": "changes a tensor of that one",
    "Looks": "an attribute of a function",
    "Swaps": "step has different types",
    "Elements": "changed in place, and other names may hold it",
    "Power": "if the exponent is negative",
    "OneOfTwo": "best is changed in place",
    "OneRow": "cannot be run on the example",
    "Squeezed": "how many dimensions",
    "OneLeft": "how many dimensions",
    "HeldTwice": "another name holds, too",
    "ChosenTwice": "another name holds, too",
    "InsideTwice": "another name holds, too",
    "Positive": "numbers of several types",
    "Asked": "ask isinstance()",
    "Flag": "only the truth",
    "FlagAsked": "only the truth",
    "Pops": "a list changes within",
    "Renames": "x changes within",
    "Views": "that is kept",
    "Parts": "y__0 is also",
    "OfClass": "differs from class to class",
    "Promotes": "keeps the type",
    "Halves": "change a tensor's type",
    "LaterAlias": "y is changed in place",
    "LaterList": "y is changed in place",
    "LaterTuple": "y is changed in place",
    "SwapsViews": "by an expression that reads it",
    "Lazy": "use it up at once",
    "AllBumps": "changes something",
    "Operand": "only its truth",
    "Data": "used elsewhere is changed",
    "Mode": "local tensors and lists only",
    "Numpy": "name numpy",
    "Asks": "state from call to call",
    "Sometimes": "state from call to call",
    "ClassDefault": "which its class does not have",
    "NewLayer": "no layer, weight or buffer",
    "ReturnsDeque": "return a list",
    "SetOfTensors": r"take its \.item\(\)",
    "KeepsGenerator": "make a list of it",
    "ReturnsFromGenerator": "leave it by break",
    "SortsByTensor": r"of a tensor take \.item\(\)",
    "DeletesEverySecond": "with a step",
    "SlicesHeldTwice": "another name holds, too",
}


@pytest.mark.parametrize("name", REFUSED)
def test_ill_formed_networks_are_refused_with_a_reason(name: Any) -> None:
    torch.manual_seed(0)
    model = getattr(illformed, name)().eval()
    with pytest.raises(Unsplittable, match=REFUSED[name]) as caught:
        regraft.split(model, [(torch.randn(1, 6),) for _ in range(4)])
    assert caught.value.path.endswith("illformed.py") and caught.value.line > 0


def test_a_list_without_a_dtype_that_may_be_empty_is_refused() -> None:
    calls = [(torch.rand(1, 6),), (torch.tensor([[1.0, -1, 1, -1, 1, 1]]),)]
    with pytest.raises(Unsplittable, match=r"illformed.py:[1-9].* write its dtype"):
        regraft.split(illformed.Lengths().eval(), calls, cache=False)


def test_what_is_no_model_or_no_list_of_calls() -> None:
    model, calls = build_model_and_calls("Skips")
    for wrong, examples, reason in (
        (model.forward, calls, "the model is a method, not a torch"),
        (model, calls[0][0], "the example calls are a Tensor, not a list"),
        (model, [calls[0][0]], "example call 0 is a Tensor, not a tuple"),
    ):
        with pytest.raises(Unsplittable, match=reason):
            regraft.split(wrong, examples)


def test_calls_and_models_that_do_not_fit_are_refused() -> None:
    model, calls = build_model_and_calls("Skips")
    x = calls[0][0]
    hooked, _ = build_model_and_calls("Skips")
    hooked.gate.register_forward_hook(lambda *_: None)
    for wrong, examples, reason in (
        (model, [], "at least one example call"),
        (model, [(x, x)], "too many positional arguments"),
        (model, [{"y": x}], "missing a required argument"),
        (model, [([x],)], "the example call fails: TypeError"),
        (model, [(x,), (x.double(),)], "differ in argument x: a tensor of torch.float32"),
        (build_model_and_calls("Skips")[0].train(), calls, "training mode"),
        (hooked, calls, "hooks"),
        (torch.jit.trace(torch.nn.Linear(6, 6), x), calls, "TorchScript"),
    ):
        with pytest.raises(Unsplittable, match=reason):
            regraft.split(wrong, examples)
    with pytest.raises(ValueError, match="unknown compiler"):
        regraft.split(model, calls, compiler="none")


class Options(torch.nn.Module):
    """A network whose plain arguments and input length are fixed when it is split."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(6, 6)

    def forward(self, x: Any, y: Any, scale: Any = None, *, times: Any = 2) -> Any:
        if scale is not None:
            x = x * scale
        for _ in range(times):
            x = self.dense(x)
        return x * len(y) if y.sum() > 0 else x


def test_a_call_for_which_the_network_was_not_split_is_an_error() -> None:
    torch.manual_seed(0)
    model, x = Options().eval(), torch.randn(3, 6)
    result = regraft.split(model, [(x, torch.randn(rows, 6)) for rows in (2, 3, 5, 4)])
    for rows in (1, 7):  # sizes that the examples vary stay open
        y = torch.randn(rows, 6)
        torch.testing.assert_close(
            result(x, y, times=2), model(x, y).detach(), rtol=1e-4, atol=1e-4
        )
    for args, words, message in (
        ((x, x, 2.0), {}, r"scale is 2.0; the network was split for None"),
        ((x, x), {"times": 3}, r"times is 3; the network was split for 2"),
        ((x.double(), x), {}, r"x is float64 \(3, 6\); the network was split for float32 \(3, 6\)"),
        ((x, x[0]), {}, r"y is float32 \(6,\); the network was split for float32 \(any, 6\)"),
        ((x[:2], x), {}, r"x is float32 \(2, 6\); the network was split for float32 \(3, 6\)"),
    ):
        with pytest.raises(ValueError, match=message):
            result(*args, **words)


def test_a_side_that_no_checked_input_took_is_refused() -> None:
    model, calls = build_model_and_calls("Rare")
    with pytest.raises(
        Unsplittable, match="side where the condition holds; give an example call"
    ) as caught:
        regraft.split(model, calls)
    assert caught.value.path.endswith("networks.py") and caught.value.line > 0
    report = regraft.split(model, [*calls, (calls[0][0] * 1e12,)]).report
    assert report.sides == report.sides_run == 2


def test_a_side_that_no_input_took_can_raise_instead(tmp_path: Path) -> None:
    model, calls = build_model_and_calls("Rare")
    result = regraft.split(model, calls, unseen="raise")
    (reason,) = result.report.unseen
    assert "networks.py:" in reason and (result.report.sides, result.report.sides_run) == (2, 1)
    result.save(tmp_path)
    loaded = regraft.load_split(tmp_path)
    torch.testing.assert_close(loaded(calls[0][0]), calls[0][0])
    with pytest.raises(RuntimeError, match="the condition holds was never checked"):
        loaded(calls[0][0] * 1e12)
    with pytest.raises(ValueError, match="unseen"):
        regraft.split(model, calls, unseen="ignore")


@pytest.mark.slow
def test_a_network_that_was_split_before_comes_from_the_cache() -> None:
    model, calls = build_model_and_calls("Skips")
    first = regraft.split(model, calls)
    second = regraft.split(model, calls)
    assert second.report == first.report and second.directory != first.directory
    torch.testing.assert_close(
        second(calls[0][0])[0], model(calls[0][0])[0].detach(), rtol=1e-4, atol=1e-4
    )
    assert regraft.split(model, calls, cache=False).directory != second.directory
    (second.directory / "weights.bin").write_bytes(b"damaged")
    repaired = regraft.split(model, calls)
    assert (
        repaired.directory != second.directory
        and regraft.split(model, calls).directory == second.directory
    )
    with torch.no_grad():
        model.blocks[0].bias += 0.01
    changed = regraft.split(model, calls)
    assert changed.directory != second.directory
    torch.testing.assert_close(
        changed(calls[0][0])[0], model(calls[0][0])[0].detach(), rtol=1e-4, atol=1e-4
    )
    directories = []
    for number in (1, 1, 2):
        model.note = lambda number=number: number
        regraft.split(model, calls)
        directories.append(regraft.split(model, calls).directory)
    assert directories[0] == directories[1] != directories[2]
    with open(__file__, encoding="utf-8") as model.note:  # has no content to compare
        assert regraft.split(model, calls).directory != regraft.split(model, calls).directory


SPLIT_TWICE = """
import sys
import torch
import regraft
from networks import Skips

torch.manual_seed(0)
model = Skips().eval()
calls = [(torch.randn(1, 6),) for _ in range(8)]
print(regraft.split(model, calls).directory)
"""


@pytest.mark.slow
def test_another_process_finds_a_network_in_the_cache(tmp_path: Path) -> None:
    script = tmp_path / "split_it.py"
    script.write_text(SPLIT_TWICE)
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(pathlib.Path(__file__).parent),
    }
    command = [sys.executable, str(script)]
    first, second = (
        Path(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout.strip()
        )
        for _ in range(2)
    )
    cache = Path(os.environ["REGRAFT_CACHE_DIR"])
    assert cache in second.parents and cache not in first.parents


@pytest.mark.slow
def test_a_call_changes_nothing_for_the_cache() -> None:
    model, calls = build_model_and_calls("Skips")
    names = ["weight", "bias"]
    model.plans = {"first": names, "second": names}
    regraft.split(model, calls)
    directory = regraft.split(model, calls).directory
    model.plans = {"first": list(names), "second": ["".join(["wei", "ght"]), "bias"]}
    assert regraft.split(model, calls).directory == directory
    model.plans["second"].append("norm")
    assert regraft.split(model, calls).directory != directory
    noting, call = networks.Noting().eval(), (torch.ones(3),)
    regraft.split(noting, [call])
    assert (
        regraft.split(noting, [call]).directory
        == regraft.split(networks.Noting().eval(), [call]).directory
    )


def test_an_input_of_one_element_is_perturbed_to_every_side() -> None:
    report = regraft.split(networks.Gate().eval(), [(torch.ones(1),)]).report
    assert report.sides == report.sides_run == 2


def changed_host(monkeypatch: pytest.MonkeyPatch, old: Any, new: Any) -> None:
    """Replace a text in the source of every host that is written."""
    original = regraft.splitting.emitting.emit_directory.host_source

    def changed(*args: Any) -> Any:
        source = original(*args)
        assert old in source
        return source.replace(old, new)

    monkeypatch.setattr(regraft.splitting.emitting.emit_directory, "host_source", changed)


def test_another_decision_is_found_where_the_results_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed_host(monkeypatch, ">= 1.0", ">= 1.5")
    with pytest.raises(Unsplittable, match="decides differently") as caught:
        regraft.split(networks.Twins().eval(), [(torch.ones(6),)])
    assert caught.value.path.endswith("networks.py") and caught.value.line > 0


def test_another_decision_at_the_threshold_is_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed_host(monkeypatch, ">= 1.0", "> 1.0")
    result = regraft.split(networks.Twins().eval(), [(torch.ones(1),)])
    assert len(result.report.at_threshold) == 1 and result.report.at_threshold[0].startswith(
        "input 0: "
    )
    result.save(tmp_path)
    assert regraft.load_split(tmp_path).report == result.report


@pytest.mark.slow
def test_a_loop_that_might_not_end_does_not_stop_the_check() -> None:
    report = regraft.split(networks.Doubles().eval(), [(torch.ones(1),)]).report
    assert report.sides == report.sides_run and report.inputs_checked == 200


@pytest.mark.slow
def test_the_command_writes_a_directory_or_says_why_not(
    tmp_path: Path, run_command: Callable[..., Any]
) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom split import illformed, language, networks,"
        " sizes\ntorch.manual_seed(0)\ndef good():\n    return networks.Skips().eval(),"
        " [(torch.randn(1, 6),) for _ in range(9)]\ndef eager():\n    return"
        " networks.Bessel().eval(), [(torch.randn(1, 6),)]\ndef bad():\n    return"
        " illformed.Noise().eval(), [(torch.randn(1, 6),)]\n"
    )
    tests = os.path.dirname(os.path.dirname(networks.__file__))
    command = [sys.executable, "-m", "regraft", "split", "nets:good", "-o", "good"]
    in_a_process = subprocess.run(
        [*command, "--output-format", "json"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert in_a_process.returncode == 0 and (tmp_path / "good" / "host.py").exists()
    assert "stays eager" in run_command("nets.py:eager", "-o", "eager").stdout
    refused = run_command("nets.py:bad", "-o", "bad")
    assert refused.exit_code == 1 and "random" in refused.stderr and not (tmp_path / "bad").exists()
    assert run_command("nets.py:missing", "-o", "missing").exit_code == 2


def test_rounding_is_what_other_last_bits_of_the_weights_change() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64, eps=1e-12)).eval()
    with torch.no_grad():
        model[0].weight.mul_(1e-4)
        model[0].bias.fill_(1.0)
        call = {"input": torch.randn(1, 64)}
        expected, exact = (
            model(**call),
            copy.deepcopy(model).double()(call["input"].double()).float(),
        )
    assert difference(exact, expected) and is_rounding(model, call, exact, expected)
    assert not is_rounding(model, call, expected * 1.01, expected)
    assert not is_rounding(model, call, (expected, 1), (expected, 2))
    assert not is_rounding(model, call, expected[:, :9], expected)
    holed = expected.masked_fill(
        torch.arange(expected.numel()).view_as(expected) == 0, float("nan")
    )
    assert not is_rounding(model, call, holed, expected) and not is_rounding(
        model, call, expected, holed
    )
    assert not is_rounding(model, call, holed * 1.01, holed)


def test_what_is_as_near_to_the_exact_result_as_the_original_is_rounding_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model, call = torch.nn.Linear(4096, 8).eval(), {"input": torch.randn(2, 4096)}
    with torch.no_grad():
        expected, exact = (
            model(**call),
            copy.deepcopy(model).double()(call["input"].double()).float(),
        )
        changes = [
            (rounding_test.run_rounded(model, call, seed) - expected).abs().max()
            for seed in range(rounding_test.ROUNDINGS)
        ]
    error = expected - exact
    monkeypatch.setattr(rounding_test, "MOST", 1.5 * float(error.abs().max() / max(changes)))
    assert is_rounding(model, call, exact - 0.9 * error, expected)
    assert not is_rounding(model, call, exact - 2 * error, expected)
    assert not is_rounding(model, call, expected + 2 * error, expected)
    monkeypatch.setattr(rounding_test, "run_in_double", lambda *_: None)
    assert not is_rounding(model, call, exact - 0.9 * error, expected)
