"""Test threads and execution providers: when splitting, in what is written, and when it is
loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")


import regraft  # noqa: E402
from regraft.splitting import pipeline, split_call  # noqa: E402
from split.networks import OneDecision  # noqa: E402

CPU = "CPUExecutionProvider"
# the other provider that ONNX Runtime's package for the CPU has
AZURE = "AzureExecutionProvider"
CALLS = [(torch.ones(1, 4),), (-torch.ones(1, 4),)]


def split(**options: Any) -> Any:
    """Split the network."""
    torch.manual_seed(0)
    return regraft.split(OneDecision().eval(), CALLS, cache=False, **options)


def threads_of(network: Any) -> set[int]:
    """Return the numbers of threads of all sessions of a split network."""
    sessions = [network.session] if hasattr(network, "session") else network.host.sessions.values()
    return {session.get_session_options().intra_op_num_threads for session in sessions}


@pytest.mark.parametrize("form", ["directory", "batches", "file"])
def test_threads_are_recorded_and_can_be_replaced(form: str, tmp_path: Path) -> None:
    options = {"single_file": form == "file", "batched": form == "batches"}
    network = split(threads=2, **options)
    assert threads_of(network) == {2}
    assert threads_of(split(**options)) == {1}
    written, moved = tmp_path / "net", tmp_path / "elsewhere"
    network.save(written)
    shutil.move(written, moved)
    assert threads_of(regraft.load_split(moved)) == {2}
    loaded = regraft.load_split(moved, threads=3)
    assert threads_of(loaded) == {3}
    assert torch.equal(torch.stack([*loaded(CALLS[0][0])]), torch.stack([*network(CALLS[0][0])]))


@pytest.mark.parametrize("threads", [1, 2])
def test_torch_has_as_many_threads_while_a_network_is_split(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: set[int] = set()

    def build(*arguments: Any) -> Any:
        counts.add(torch.get_num_threads())
        return pipeline.build(*arguments)

    monkeypatch.setattr(split_call, "build", build)
    torch.set_num_threads(3)
    try:
        split(threads=threads)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert counts == {threads}


@pytest.mark.parametrize("form", ["directory", "file"])
def test_providers_are_recorded_and_can_be_replaced(form: str, tmp_path: Path) -> None:
    if AZURE not in onnxruntime.get_available_providers():
        pytest.skip(f"this ONNX Runtime has no {AZURE}")
    network = split(providers=[AZURE, CPU], single_file=form == "file")
    network.save(tmp_path / "net")
    loaded = regraft.load_split(tmp_path / "net")
    on_cpu = regraft.load_split(tmp_path / "net", providers=[CPU])
    for model, providers in ((loaded, [AZURE, CPU]), (on_cpu, [CPU])):
        session = model.session if form == "file" else next(iter(model.host.sessions.values()))
        assert session.get_providers() == providers
        assert torch.allclose(model(*CALLS[0]), network(*CALLS[0]))


@pytest.mark.parametrize(
    "provider",
    [
        "CUDAExecutionProvider",
        "TensorrtExecutionProvider",
        "CoreMLExecutionProvider",
        "OpenVINOExecutionProvider",
    ],
)
def test_providers_of_other_packages(provider: str) -> None:
    if provider not in onnxruntime.get_available_providers():
        with pytest.raises(ValueError, match=f"without the provider {provider}.* has .*{CPU}"):
            split(providers=[provider, CPU])
        pytest.skip(f"this ONNX Runtime has no {provider}")
    network = split(providers=[provider, CPU])
    assert all(torch.allclose(network(*call), OneDecision().eval()(*call)) for call in CALLS[1:])


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"threads": 0}, "threads is 0; give a whole number from 1 on"),
    ({"threads": -2}, "threads is -2"),
    ({"threads": True}, "threads is True"),
    ({"threads": 1.5}, "threads is 1.5"),
    ({"threads": "2"}, "threads is '2'"),
    ({"providers": []}, "providers is .*give a list of names"),
    ({"providers": CPU}, "providers is .*give a list of names"),
    ({"providers": 3}, "providers is 3"),
    ({"providers": [CPU, CPU]}, "names one twice"),
    ({"providers": [3]}, "no provider 3"),
    (
        {"providers": ["CPUExecutionProvder"]},
        f"no provider 'CPUExecutionProvder'; did you mean {CPU}\\? This installation has .*{CPU}",
    ),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the places of a split network as a directory and as a file."""
    folder = tmp_path_factory.mktemp("saved")
    places = {"directory": folder / "net", "file": folder / "net.onnx"}
    for form, place in places.items():
        split(single_file=form == "file").save(place)
    return places


@pytest.mark.parametrize(("settings", "message"), WRONG_SETTINGS)
def test_wrong_settings_are_errors(
    settings: dict[str, Any], message: str, saved: dict[str, Path]
) -> None:
    with pytest.raises(ValueError, match=message):
        split(**settings)
    for place in saved.values():
        with pytest.raises(ValueError, match=message):
            regraft.load_split(place, **settings)


def test_the_host_alone_takes_and_checks_settings(saved: dict[str, Path]) -> None:
    program = (
        "from host import Host\n"
        "print(Host(threads=2).settings['threads'])\n"
        "for settings in ({'threads': 0}, {'providers': ['CUDA']}):\n"
        "    try: Host(**settings)\n"
        "    except ValueError as problem: print(problem)\n"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(
        command, cwd=saved["directory"], capture_output=True, text=True, check=True
    )
    threads, wrong_threads, wrong_provider = run.stdout.splitlines()
    assert threads == "2" and wrong_threads == "threads is 0; give a whole number from 1 on"
    assert wrong_provider.startswith("ONNX Runtime has no provider 'CUDA' here; it has ")


def test_settings_that_the_engine_does_not_take(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the compiler aotinductor takes no threads; leave them"):
        split(compiler="aotinductor", threads=2)
    pytest.importorskip("openvino")
    with pytest.raises(ValueError, match="the compiler openvino takes no providers; leave them"):
        split(compiler="openvino", providers=[CPU])
    split(compiler="openvino", threads=2).save(tmp_path)
    loaded = regraft.load_split(tmp_path)
    assert loaded.host.options["INFERENCE_NUM_THREADS"] == 2
    with pytest.raises(ValueError, match="run with openvino, which takes no providers here"):
        regraft.load_split(tmp_path, providers=[CPU])


def test_networks_with_other_settings_are_other_networks_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path))
    torch.manual_seed(0)
    model = OneDecision().eval()
    for threads in (1, 2, 1):
        assert threads_of(regraft.split(model, CALLS, threads=threads)) == {threads}


def test_the_command_takes_settings(run_command: Callable[..., Any]) -> None:
    Path("net.py").write_text(
        "import torch\n"
        "class OneDecision(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.exp() if x.sum() > 0 else x\n"
        "def build():\n"
        "    return OneDecision().eval(), [(torch.ones(1, 4),), (-torch.ones(1, 4),)]\n"
    )
    arguments = ["net.py:build", "-o", "net", "--no-cache"]
    result = run_command(*arguments, "--threads", "2", "--providers", CPU)
    assert result.exit_code == 0, result.output
    settings = json.loads(Path("net/manifest.json").read_text())["settings"]
    assert settings == {"threads": 2, "providers": [CPU]}
    result = run_command(*arguments, "--threads", "0")
    assert result.exit_code == 2 and "0 is not in the range" in result.output
    result = run_command(*arguments, "--providers", "CPUExecutionProvder")
    assert result.exit_code == 2 and f"did you mean {CPU}?" in result.output
