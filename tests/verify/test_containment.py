"""Test what code under test cannot do: each test is an attempt, bounded so that it does no harm
where it succeeds.

What namespaces are needed for is skipped where the system has none.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import regraft
from regraft.verification import (
    Verdict,
    VerifyError,
    child_job,
    containment,
    resource_limits,
    verify,
)
from regraft.verification.child_environment import child_environment
from regraft.verification.child_process import read_regular_file
from regraft.verification.containment import Containment, SandboxMode, namespaces_refusal
from regraft.verification.containment_hints import with_hint
from regraft.verification.resource_limits import Limits

pytest.importorskip("torch")

REFUSAL = namespaces_refusal()
needs_namespaces = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "there are namespaces")
in_both_modes = pytest.mark.parametrize(
    "sandbox", ["off", pytest.param("require", marks=needs_namespaces)]
)
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
SOURCE = """
import os
import sys
import time

import torch
from torch import nn


def attempt():
{attempt}


class Layer(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        attempt()
        return torch.softmax(self.dense(x), -1)
"""


def write_layer(folder: Path, attempt: str) -> tuple[Path, bytes]:
    """Write a layer that makes an attempt whenever it is called; return its path and a changed
    version of it."""
    path = folder / "layer.py"
    folder.mkdir(exist_ok=True)
    text = SOURCE.format(attempt=textwrap.indent(textwrap.dedent(attempt), "    "))
    path.write_text(text, encoding="utf-8")
    changed = text.replace("torch.softmax(self.dense(x), -1)", "self.dense(x).softmax(-1)")
    return path, changed.encode()


def verdict_on(
    attempt: str,
    folder: Path,
    sandbox: SandboxMode,
    limits: Limits = Limits(),
    seconds: float = 60.0,
    passed: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict on a layer that makes an attempt."""
    path, changed = write_layer(folder, attempt)
    (verdict,) = verify(
        path,
        changed,
        effort="low",
        time_limit=seconds,
        containment=Containment(sandbox, passed, limits),
    )
    return verdict


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, beside which other files are none of the code's business."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@in_both_modes
def test_secrets_of_the_environment_stay_away(
    sandbox: SandboxMode, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "secret")
    attempt = 'os.environ["SERVICE_API_KEY"]'
    verdict = verdict_on(attempt, working_folder, sandbox)
    assert verdict.status == "unproven"
    assert "KeyError: 'SERVICE_API_KEY'" in verdict.reason
    assert "--pass-env SERVICE_API_KEY" in verdict.reason
    passed = verdict_on(attempt, working_folder, sandbox, passed=("SERVICE_API_KEY",))
    assert (passed.status, passed.reason) == ("proved", "")


@in_both_modes
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_large_files_end_the_run(sandbox: SandboxMode, working_folder: Path) -> None:
    verdict = verdict_on(
        """
        with open(os.path.join(os.environ.get("TMPDIR", ""), "large"), "wb") as file:
            for _ in range(300):
                file.write(bytes(2**20))
        """,
        working_folder,
        sandbox,
        Limits(file_bytes=8 * 2**20),
    )
    assert verdict.status != "proved"
    assert "it wrote a file over 8 MiB, at 'look for inputs of Layer'" in verdict.reason


@needs_namespaces
def test_files_outside_stay_as_they_are(working_folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("before", encoding="utf-8")
    verdict = verdict_on('open("large", "wb").write(bytes(300_000_000))', working_folder, "require")
    assert "Read-only file system" in verdict.reason
    assert "--sandbox off" in verdict.reason
    assert not (working_folder / "large").exists()
    hidden = verdict_on(f'open({str(outside)!r}, "r+").write("after")', working_folder, "require")
    assert "FileNotFoundError" in hidden.reason
    assert outside.read_text(encoding="utf-8") == "before"


@needs_namespaces
def test_temporary_files_are_private(working_folder: Path) -> None:
    name = f"/tmp/regraft-test-{os.getpid()}"
    verdict = verdict_on(f'open({name!r}, "a").write("x")', working_folder, "require")
    assert (verdict.status, verdict.reason) == ("proved", "")
    assert not Path(name).exists()


@needs_namespaces
def test_the_home_folder_is_hidden(
    working_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "home" / ".netrc"
    secret.parent.mkdir()
    secret.write_text("secret", encoding="utf-8")
    monkeypatch.setenv("HOME", str(secret.parent))
    verdict = verdict_on(f"open({str(secret)!r}).read()", working_folder, "require")
    assert "FileNotFoundError" in verdict.reason
    assert "verification hides this file" in verdict.reason


@needs_namespaces
def test_the_repository_is_readable(working_folder: Path) -> None:
    (working_folder / "pyproject.toml").touch()
    (working_folder / "weights.txt").write_text("1.0", encoding="utf-8")
    package = working_folder / "net"
    package.mkdir()
    (package / "__init__.py").touch()
    weights = str(working_folder / "weights.txt")
    verdict = verdict_on(f"float(open({weights!r}).read())", package, "require")
    assert (verdict.status, verdict.reason) == ("proved", "")


@needs_namespaces
def test_no_socket_reaches_this_process(working_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        attempt = f"""
        import socket
        socket.create_connection({server.getsockname()!r}, 2)
        """
        verdict = verdict_on(attempt, working_folder, "require")
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert "Connection refused" in verdict.reason
    assert "verification has no network" in verdict.reason


@needs_namespaces
def test_the_loopback_interface_works_inside(working_folder: Path) -> None:
    attempt = """
    import socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    """
    assert verdict_on(attempt, working_folder, "require").status == "proved"


@in_both_modes
@needs_proc
def test_processes_that_left_the_session_end(sandbox: SandboxMode, working_folder: Path) -> None:
    word = f"stays-{os.getpid()}-{time.monotonic_ns()}"
    verdict = verdict_on(
        f"""
        import subprocess
        if not hasattr(sys, "started"):
            program = [sys.executable, "-c", "import time; time.sleep(300)", {word!r}]
            sys.started = subprocess.Popen(program, env={{}}, start_new_session=True)
        assert sys.started.poll() is None
        """,
        working_folder,
        sandbox,
    )
    assert (verdict.status, verdict.reason) == ("proved", "")
    assert not processes_with(word)


@needs_namespaces
def test_nothing_outlives_a_child_that_crashes(working_folder: Path) -> None:
    word = f"stays-{os.getpid()}-{time.monotonic_ns()}"
    verdict = verdict_on(
        f"""
        import subprocess
        program = [sys.executable, "-c", "import time; time.sleep(300)", {word!r}]
        subprocess.Popen(program, env={{}}, start_new_session=True)
        os.abort()
        """,
        working_folder,
        "require",
    )
    assert "the process was killed by SIGABRT" in verdict.reason
    assert not processes_with(word)


def processes_with(word: str) -> list[str]:
    """Return the processes that have a word in their command."""
    return [
        entry.parent.name
        for entry in Path("/proc").glob("[0-9]*/cmdline")
        if word.encode() in read_bytes(entry)
    ]


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, none where its process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@in_both_modes
@needs_proc
def test_a_fork_bomb_ends(sandbox: SandboxMode, working_folder: Path) -> None:
    attempt = """
    for _ in range(5):  # 32 processes, and no more
        os.fork()
    time.sleep(30)
    """
    verdict = verdict_on(attempt, working_folder, sandbox, Limits(processes=16))
    assert verdict.status == "unproven"
    assert "processes (limit 16), at 'look for inputs of Layer'" in verdict.reason


@in_both_modes
@needs_proc
def test_memory_is_limited(sandbox: SandboxMode, working_folder: Path) -> None:
    attempt = """
    blocks = []
    while len(blocks) < 100:  # 3 GiB of the 50 that others would take
        blocks.append(b"1" * 2**25)
        time.sleep(0.02)
    """
    verdict = verdict_on(attempt, working_folder, sandbox, Limits(memory=2**30))
    assert verdict.status == "unproven"
    assert "GiB of memory (limit 1.0), at 'look for inputs of Layer'" in verdict.reason


@in_both_modes
def test_an_endless_loop_ends(sandbox: SandboxMode, working_folder: Path) -> None:
    verdict = verdict_on("while True:\n    pass", working_folder, sandbox, seconds=0.5)
    assert verdict.status == "unproven"
    assert "time limit" in verdict.reason


@needs_namespaces
def test_no_signal_reaches_this_process(working_folder: Path) -> None:
    signals: list[int] = []
    handler = signal.signal(signal.SIGUSR1, lambda number, _: signals.append(number))
    try:
        attempt = f"""
        import signal
        os.kill({os.getpid()}, signal.SIGUSR1)
        """
        verdict = verdict_on(attempt, working_folder, "require")
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert "ProcessLookupError" in verdict.reason
    assert signals == []


@needs_namespaces
def test_capabilities_are_gone(working_folder: Path) -> None:
    attempt = """
    import ctypes
    libc = ctypes.CDLL(None)
    assert libc.umount2(b"/tmp", 2) == -1
    assert libc.mount(None, b"/", None, 32 | 4096, None) == -1  # writable again
    assert not [name for name in os.listdir("/dev") if name.startswith(("sd", "vd", "nvme"))]
    """
    verdict = verdict_on(attempt, working_folder, "require")
    assert (verdict.status, verdict.reason) == ("proved", "")


def test_what_all_processes_use_is_no_fault_of_a_version(working_folder: Path) -> None:
    """A limit on the sum refutes nothing, in whichever step it is exceeded."""
    attempt = """
    if "__regraft" in __name__:
        for _ in range(20):
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
        time.sleep(30)
    """
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    verdict = verdict_on(attempt, working_folder, "off", Limits(processes=10))
    assert verdict.status == "unproven"
    assert "processes (limit 10)" in verdict.reason


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("PATH", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("TORCH_HOME", True),
        ("LC_ALL", True),
        ("HF_HOME", True),
        ("HF_TOKEN", False),
        ("PYTHON_API_KEY", False),
        ("AWS_ACCESS_KEY_ID", False),
        ("GITHUB_TOKEN", False),
        ("DATABASE_URL", False),
        ("SSH_AUTH_SOCK", False),
        ("HTTPS_PROXY", False),
    ],
)
def test_variables_that_pass(name: str, passes: bool) -> None:
    assert (name in child_environment({name: "value"}, ())) is passes
    assert name in child_environment({name: "value"}, (name,))


def test_hints_name_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    off = Containment("off")
    assert "--pass-env SOME_TOKEN" in with_hint("it failed: KeyError: 'SOME_TOKEN'", off, None)
    for reason in ("KeyError: 'weights'", "OSError: [Errno 30] Read-only file system: '/x'"):
        assert with_hint(reason, off, None) == reason
    assert "8 GiB" in with_hint("MemoryError: ", off, 8 * 1024**3)
    source = b"flag = int(os.environ.get('SOME_TOKEN') or os.environ['HOME'])"
    reason = with_hint("it failed: TypeError: int() got None", off, None, source=source)
    assert "--pass-env SOME_TOKEN lets it through" in reason
    notes = ["without line 4 (KeyError: 'SOME_TOKEN')"]
    assert "--pass-env SOME_TOKEN" in with_hint("NameError: 'x'", off, None, notes=notes)


@pytest.mark.parametrize(
    ("error", "has_hint"), [("AssertionError: ", True), ("ModuleNotFoundError: No module", False)]
)
def test_a_file_that_does_not_import_may_miss_files(
    error: str, has_hint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containment, "namespaces_refusal", lambda: "")
    reason = f"the original does not import: {error}"
    hint = with_hint(reason, Containment(), None, absent=["/no/such/file", __file__])
    assert (f"hides {__file__}: --sandbox off shows it" in hint) is has_hint
    assert with_hint(reason, Containment(), None, absent=["/no/such/file"]) == reason
    assert with_hint(reason, Containment("off"), None, absent=[__file__]) == reason


def test_the_hint_for_a_package_of_another_torch_is_not_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containment, "namespaces_refusal", lambda: "")
    reason = "the original does not import: RuntimeError: operator torchvision::nms does not exist"
    advice = "the installed torchvision does not fit the installed torch: install one for it"
    hint = with_hint(reason, Containment(), None, absent=[__file__])
    assert hint == f"{reason} ({advice})"


def test_the_domain_names_variables_that_are_kept_back(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_FLAG", "1")
    path, changed = write_layer(working_folder, "os.environ.get('SOME_FLAG', '0')")
    (verdict,) = verify(path, changed, effort="low")
    domain = verdict.evidence["domain"]
    assert isinstance(domain, dict)
    assert domain["environment"] == ["without SOME_FLAG (--pass-env SOME_FLAG)"]


def test_a_required_sandbox_is_missing(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containment, "namespaces_refusal", lambda: "it is forbidden here")
    path, changed = write_layer(working_folder, "pass")
    with pytest.raises(VerifyError, match="no sandbox: it is forbidden here"):
        verify(path, changed, containment=Containment("require"))
    (working_folder / "changed.py").write_bytes(changed)
    result = regraft("verify", "--sandbox", "require", "layer.py", "changed.py")
    assert result.returncode == 2
    assert "error: --sandbox require: there is no sandbox: it is forbidden here" in result.stderr


REWRITABLE = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        x = self.dense(x)
        return x * torch.sigmoid(x)
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_commands_say_how_code_is_contained(
    quiet: bool, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containment, "namespaces_refusal", lambda: "it is forbidden here")
    path = working_folder / "layer.py"
    path.write_text(REWRITABLE, encoding="utf-8")
    # Nothing runs, nothing is proved.
    monkeypatch.setattr(child_job.Job, "run", lambda _: ({}, {}))
    options = ["--no-cache", "--unproven", "--select=torch/silu", *["--quiet"] * quiet]
    result = regraft("check", "--fix", *options, "layer.py")
    assert "silu" in path.read_text(encoding="utf-8")
    line = "verification runs code of layer.py (without a sandbox: it is forbidden here)"
    assert result.stderr.splitlines().count(line) == (0 if quiet else 1)
    assert "verification" not in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_only_regular_files_of_a_child_are_read(tmp_path: Path) -> None:
    regular, link, pipe = tmp_path / "regular", tmp_path / "link", tmp_path / "pipe"
    regular.write_bytes(b"12345")
    link.symlink_to(regular)
    os.mkfifo(pipe)
    assert read_regular_file(regular) == b"12345"
    assert read_regular_file(regular, 2) == b"45"
    assert {read_regular_file(path) for path in (link, pipe, tmp_path / "none")} == {b""}


def test_a_process_that_ends_while_it_is_listed_uses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = {pid: tmp_path / str(pid) / "task" / str(pid) for pid in (1, 2, 3)}
    for folder in threads.values():
        folder.mkdir(parents=True)
    (threads[1] / "children").write_text("2 3 ")
    (threads[3] / "children").write_text("4 ")
    monkeypatch.setattr(resource_limits, "_PROC", tmp_path)
    list_paths = Path.glob

    def end_second(self: Path, pattern: str) -> Iterator[Path]:
        if self == threads[2].parent:
            raise FileNotFoundError(self)
        return list_paths(self, pattern)

    monkeypatch.setattr(Path, "glob", end_second)
    assert resource_limits._below(1) == {2, 3, 4}
