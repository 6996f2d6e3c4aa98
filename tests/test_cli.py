"""Test the command line as a user meets it: output, exit codes, bad input, nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import STRANGE, regraft, regraft_process
from regraft.cli import shared_options

Write = Callable[[str, str], Path]

CODE = """
import torch


def weights(scores):
    return torch.softmax(scores, dim=-1)
"""


HAND_WRITTEN_GELU = """\
import math

import torch
import torch.nn.functional as F


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
"""


def test_findings_exit_1_and_show_the_place(write: Write) -> None:
    path = write("m.py", CODE)
    result = regraft_process("check", "--all", path)
    assert result.returncode == 1
    assert f"{path}:6:12 adopter/softmax [exact]" in result.stdout
    assert "^^^^^^^^^^^^^^^^^^^^^^^^^^^^^" in result.stdout
    assert "1 finding (1 fixable), 1 file" in result.stdout
    assert "\x1b[" not in result.stdout


def test_nothing_to_do_exits_0(write: Write) -> None:
    result = regraft("check", "--all", write("m.py", "x = 1\n"))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("command", ["check", "driver", "verify"])
def test_a_missing_file_is_answered_with_a_name_like_it(
    write: Write, tmp_path: Path, command: str
) -> None:
    write("model.py", CODE)
    write("right.diff", "")
    name = "righ.diff" if command == "verify" else "modell.py"
    result = regraft(command, name, cwd=tmp_path)
    assert result.returncode == 2
    expected = "right.diff" if command == "verify" else "model.py"
    assert f"did you mean {expected}?" in result.stderr + result.stdout


def test_concise_is_a_line_each(write: Write) -> None:
    path = write("m.py", CODE)
    result = regraft("check", "--all", "--output-format", "concise", path)
    assert result.stdout == f"{path}:6:12 adopter/softmax [exact] Softmax over the last dimension\n"


def test_the_current_folder_is_checked_where_no_path_is_named(write: Write, tmp_path: Path) -> None:
    write("inner/m.py", CODE)
    result = regraft("check", "--all", "--output-format", "concise", cwd=tmp_path)
    assert result.stdout.startswith(f"{Path('inner', 'm.py')}:6:12 adopter/softmax [exact]")


def test_json_has_its_shape(write: Write) -> None:
    path = write("m.py", CODE)
    result = regraft("check", "--all", "--output-format", "json", path, path.parent / "missing.py")
    report = json.loads(result.stdout)
    assert result.returncode == 2
    assert report["version"] == 1
    assert report["findings"] == [
        {
            "rule": "adopter/softmax",
            "file": str(path),
            "class": None,
            "function": "weights",
            "start": {"line": 6, "column": 12},
            "end": {"line": 6, "column": 41},
            "lines": [6],
            "guard": "",
            "mode": "substitute",
            "safety": "exact",
            "status": "fixable",
            "reason": "",
            "kernel": "regraft.ops.softmax",
            "needs": ["torch>=2.8"],
            "worth": report["findings"][0]["worth"],  # test_worth.py reads it
            "message": "Softmax over the last dimension",
            "help": "regraft.ops.softmax can replace it (mode substitute; reads line 6)",
            "fixable": True,
            "fingerprint": report["findings"][0]["fingerprint"],
            "edits": report["findings"][0]["edits"],  # test_formats.py applies them
        }
    ]
    assert report["missing"] == {}
    assert report["errors"] == [
        {
            "file": str(path.parent / "missing.py"),
            "line": 0,
            "column": 0,
            "message": "no such file or directory",
        }
    ]
    assert set(report["stats"]) == {"files", "classes", "nodes", "seconds"}


def test_diff_applies_and_writes_nothing(write: Write, tmp_path: Path) -> None:
    write("m.py", CODE)
    result = regraft("check", "--all", "--diff", "m.py", cwd=tmp_path)
    assert result.returncode == 1
    assert (tmp_path / "m.py").read_text() == CODE.replace("\n    ", "\n    ")
    subprocess.run(["git", "apply", "-"], input=result.stdout, text=True, cwd=tmp_path, check=True)
    assert "return softmax(scores)" in (tmp_path / "m.py").read_text()


@pytest.mark.slow
def test_fix_writes_and_a_second_run_is_clean(write: Write) -> None:
    path = write("m.py", CODE)
    assert regraft("check", "--all", "--fix", path).returncode == 0
    assert "return softmax(scores)" in path.read_text()
    fixed = path.read_bytes()
    assert regraft("check", "--all", "--fix", path).returncode == 0
    assert path.read_bytes() == fixed


def test_fix_writes_copies_by_their_place_in_the_package(write: Write, tmp_path: Path) -> None:
    write("package/__init__.py", "")
    write("package/models/__init__.py", "")
    path, alone, out = write("package/models/m.py", CODE), write("alone.py", CODE), tmp_path / "out"
    before = path.read_bytes()
    result = regraft("check", "--all", "--fix", "--no-verify", "--out", out, path, alone)
    assert (result.returncode, path.read_bytes(), alone.read_bytes()) == (0, before, before)
    for copy in (out / "package" / "models" / "m.py", out / "alone.py"):
        assert f"in {copy}" in result.stdout
        assert "return softmax(scores)" in copy.read_text()
    assert (
        regraft("check", "--all", "--fix", "--no-verify", "--out", out, path, alone).returncode == 0
    )
    (out / "alone.py").write_text("mine")
    result = regraft("check", "--all", "--fix", "--no-verify", "--out", out, alone)
    assert (result.returncode, (out / "alone.py").read_text()) == (2, "mine")
    assert "is there already" in result.stderr
    assert regraft("check", "--all", "--out", out, alone).returncode == 2


@pytest.mark.slow
def test_vendored_ops_need_no_regraft(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = write("m.py", CODE)
    assert regraft("check", "--all", "--fix", "--vendor", path).returncode == 0
    assert "from regraft_ops import softmax" in path.read_text()
    code = (
        "import sys; sys.modules['regraft'] = None\n"
        "import torch, m\n"
        "x = torch.randn(3, 4)\nassert torch.equal(m.weights(x), torch.softmax(x, -1))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert regraft("check", "--all", path).returncode == 0


def test_no_ops_are_vendored_for_a_rewrite_without_any(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = write("m.py", HAND_WRITTEN_GELU)
    result = regraft("check", "--fix", "--no-verify", "--vendor", path)
    assert result.returncode == 0, result.stderr
    assert "F.gelu(x" in path.read_text()
    assert not (tmp_path / "regraft_ops.py").exists()


@pytest.mark.slow
def test_fix_with_verify_writes_what_is_proved(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write("pkg/__init__.py", "")
    path = write(
        "pkg/m.py",
        """
        import torch
        from torch import nn


        class Block(nn.Module):
            def __init__(self, dim=8):
                super().__init__()
                self.norm = nn.LayerNorm(dim)
                self.drop = nn.Dropout(0.1)

            def forward(self, x):
                return self.norm(self.drop(x) + x)
        """,
    )
    result = regraft("check", "--all", "--fix", "--verify", "--vendor", path, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "Block: proved" in result.stdout
    assert "from .regraft_ops import dropout_add_layer_norm" in path.read_text()
    assert (tmp_path / "pkg" / "regraft_ops.py").exists()


@pytest.mark.slow
def test_verify_compares_any_two_versions(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "from torch import nn\n\n\nclass Double(nn.Module):\n    def forward(self, x):\n       "
        " return x * 2\n"
    )
    original, equal, wrong = (
        write("a.py", code),
        write("b.py", code.replace("x * 2", "x + x")),
        write("c.py", code.replace("* 2", "* 3")),
    )
    assert regraft("verify", original, equal, cwd=tmp_path).returncode == 0
    result = regraft("verify", "--output-format", "json", original, wrong, cwd=tmp_path)
    assert result.returncode == 1
    (verdict,) = json.loads(result.stdout)["verdicts"]
    assert (verdict["class"], verdict["status"], verdict["lines"]) == ("Double", "refuted", [6])
    assert Path(tmp_path, verdict["evidence"]["reproducer"]).exists()
    nowhere = regraft("verify", "--python", tmp_path / "nothing", original, equal, cwd=tmp_path)
    assert (nowhere.returncode, "cannot start the Python interpreter" in nowhere.stderr) == (
        2,
        True,
    )
    rules = regraft("verify", "--select", "torch/gelu", original, equal, cwd=tmp_path)
    assert (rules.returncode, "two files are compared as they are" in rules.stderr) == (2, True)
    missing = regraft("verify", original, tmp_path / "no.py")
    assert missing.returncode == 2
    assert "no.py" in missing.stderr


def test_explain_says_why_not(write: Write) -> None:
    path = write("m.py", CODE.replace("dim=-1", "dim=0"))
    result = regraft("check", "--all", "--explain", path)
    assert result.returncode == 0
    assert (
        "adopter/softmax no match in weights: an argument of torch.softmax is not -1"
        in result.stdout
    )


@pytest.mark.slow
def test_bad_files_are_errors_and_the_rest_goes_on(write: Write, tmp_path: Path) -> None:
    good = write("good.py", CODE)
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\0")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "cookie.py").write_bytes(
        b"# coding: latin-1\nimport torch\ndef f(x): return torch.softmax(x, -1), '\xe9'\n"
    )
    (tmp_path / "empty.py").write_bytes(b"")
    (tmp_path / "big.py").write_bytes(b"x = 1\n" * 900_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dead.py").symlink_to(tmp_path / "nowhere.py")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.py") if path.exists()}
    result = regraft("check", "--all", tmp_path)
    assert result.returncode == 2
    assert {path: path.read_bytes() for path in tmp_path.glob("*.py") if path.exists()} == before
    errors = result.stderr.splitlines()
    assert len(errors) == 5, errors
    for name, words in {
        "syntax.py:1:7": "syntax error",
        "binary.py:1": "binary file",
        "latin.py:1": "not valid utf-8",
        "big.py": "more than the limit",
        "dead.py": "No such file",
    }.items():
        assert any(name in error and words in error for error in errors), (name, errors)
    assert f"{good}:6:12" in result.stdout
    assert "cookie.py:3:18" in result.stdout
    fixed = regraft("check", "--all", "--fix", tmp_path)
    assert fixed.returncode == 2
    assert b"'\xe9'" in (tmp_path / "cookie.py").read_bytes()
    assert (tmp_path / "syntax.py").read_text() == "def f(:\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(write: Write) -> None:
    path = write("m.py", CODE)
    path.chmod(0)
    result = regraft("check", "--all", path)
    assert result.returncode == 2
    assert "Permission denied" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--select", "sofmax"], "did you mean softmax?"),
        (["--ignore", "nothing/here"], "no rule has this name"),
        (["--fix", "--diff"], "exclude each other"),
        (["--verify"], "--verify goes with --fix"),
        (["--diff", "--out", "x", "--driver", "m.py:f"], "--out, --driver go with --fix"),
        (["--output-format", "xml"], "xml"),
        (["--output-format", "json", "--diff"], "choose one"),
        (["--select", ""], "names no rule"),
        ([""], "the path is empty"),
    ],
)
def test_wrong_options_exit_2(write: Write, arguments: list[str], words: str) -> None:
    path = write("m.py", CODE)
    result = regraft("check", "--all", *arguments, path)
    assert result.returncode == 2
    assert words in result.stderr


def test_show_prints_one_class_and_its_paths(write: Write) -> None:
    path = write(
        "m.py",
        """
        from torch import nn

        class A(nn.Module):
            def __init__(self, flag):
                super().__init__()
                self.fc = nn.Linear(2, 2)
                self.flag = flag

            def forward(self, x):
                if self.flag:
                    x = self.fc(x)
                return x
        """,
    )
    result = regraft("show", f"{path}::A.forward")
    assert result.stdout.splitlines() == [
        "# A.forward",
        "@torch.nn.Linear(in_features=2, out_features=2) -> self.fc",
        "torch.nn.Linear(x) -> x.2 if self.flag",
        "",
    ]
    paths = regraft("show", "--paths", f"{path}::A.forward").stdout
    assert "# path 1 of 2: self.flag" in paths
    assert "# path 2 of 2: not self.flag" in paths
    missing = regraft("show", f"{path}::B")
    assert missing.returncode == 2
    assert "there is no B" in missing.stderr
    misspelt = regraft("show", f"{path}::A.foward")
    assert "there is no A.foward; did you mean A.forward?" in misspelt.stderr


def test_rule_prints_its_page_and_its_text() -> None:
    result = regraft("rule", "softmax")
    assert result.returncode == 0
    assert "# softmax" in result.stdout
    assert "regraft.ops.softmax($x, dtype=$dtype) -> $y" in result.stdout
    assert regraft("rule", "sofmax").returncode == 2


def test_scanning_imports_neither_torch_nor_what_verifies(transformers: Path) -> None:
    """The files that verify are not in the key of a report, and what a scan does not need costs
    time."""
    file = transformers / "models" / "bert" / "modeling_bert.py"
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom regraft.cli import main\nresult ="
        f" CliRunner().invoke(main, ['check', '--all', {str(file)!r}])\n"
        "assert result.exit_code == 1, result.output\n"
        "assert not {'torch', 'transformers', 'rich'} & set(sys.modules)\n"
        "unneeded = ('regraft.verification', 'regraft.execution',"
        " 'importlib.metadata', 'concurrent')\n"
        "assert not [name for name in sys.modules if name.startswith(unneeded)]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_one_file_takes_no_longer_than_compiling_it_a_hundred_times(
    transformers: Path, tmp_path: Path
) -> None:
    """After start-up, 0.3 s where it compiles in 8 ms: a clock that any machine has, however busy
    it is."""
    file = transformers / "models" / "bert" / "modeling_bert.py"
    code = (
        "import sys, time\nfrom click.testing import CliRunner\nfrom regraft.cli import main\n"
        f"text = open({str(file)!r}).read()\n"
        "started = time.process_time()\n"
        f"CliRunner().invoke(main, ['check', {str(file)!r}])\n"
        "checked = time.process_time()\n"
        "for _ in range(20):\n    compile(text, 'a', 'exec')\n"
        "print((checked - started) / (time.process_time() - checked) * 20)\n"
    )
    variables = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    variables["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, env=variables
            ).stdout
        )
        for _ in range(4)  # the first one writes the bytecode
    ]
    assert min(times) < 100


def test_a_number_too_long_to_print_is_one_error(write: Write) -> None:
    number = "0x" + "f" * 5000
    path = write(
        "m.py",
        f"import torch\n\ndef f(x):\n    return torch.nn.Dropout({number})(x).softmax({number})\n",
    )
    result = regraft("check", "--all", path, write("good.py", CODE))
    assert "Traceback" not in result.stderr
    assert "good.py:6:12" in result.stdout
    result = regraft("show", path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("word", ["rules", "--version"])
def test_a_reader_that_closes_the_pipe_is_no_finding(word: str) -> None:
    """`regraft check . | head` in a script with `pipefail` must not look like a finding."""
    command = [sys.executable, "-m", "regraft", word]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_plain_terminal_gets_no_colours(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_options, "is_terminal", lambda _: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shared_options.paint("word", fg="red") != "word"
    monkeypatch.setenv(name, value)
    assert shared_options.paint("word", fg="red") == "word"


def test_output_that_cannot_be_written_is_one_error(write: Write) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs a device that is always full")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "regraft", "check", "--all", str(write("m.py", CODE))]
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 2
    assert "cannot write the output" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_jobs_and_cache_print_the_same(write: Write, tmp_path: Path) -> None:
    for number in range(6):
        write(f"m{number}.py", CODE + CODE.replace("weights", "again") * (number % 2))
    plain = regraft_process("check", "--all", "--no-cache", tmp_path)
    assert plain.stdout.count("adopter/softmax") == 9
    for options in (["--jobs", "2"], ["--jobs", "2"], [], ["--jobs", "0", "--no-cache"]):
        result = regraft_process("check", "--all", *options, tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (
            plain.returncode,
            plain.stdout,
            plain.stderr,
        )
    assert list(Path(os.environ["REGRAFT_CACHE_DIR"]).glob("??/*"))


@pytest.mark.slow
def test_jobs_go_with_explain_and_fix(write: Write, tmp_path: Path) -> None:
    write("a.py", CODE.replace("dim=-1", "dim=0"))
    path = write("b.py", CODE)
    explained = regraft_process("check", "--all", "--explain", tmp_path)
    assert (
        regraft_process("check", "--all", "--explain", "--jobs", "2", tmp_path).stdout
        == explained.stdout
    )
    assert "no match in weights" in explained.stdout
    assert (
        regraft_process("check", "--all", "--diff", "--jobs", "2", tmp_path).stdout
        == regraft_process("check", "--all", "--diff", tmp_path).stdout
    )
    assert regraft_process("check", "--all", "--fix", "--jobs", "2", tmp_path).returncode == 0
    assert "return softmax(scores)" in path.read_text()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_ends_all_processes(write: Write, tmp_path: Path) -> None:
    code = "".join(CODE.replace("weights", f"weights{number}") for number in range(50))
    for number in range(200):
        write(f"m{number:03}.py", code)
    command = [
        sys.executable,
        "-m",
        "regraft",
        "check",
        "--all",
        "--jobs",
        "2",
        "--no-cache",
        str(tmp_path),
    ]
    # what is ignored here is ignored by children
    outer = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, outer)
    assert process.stdout is not None
    assert b"m000.py" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"interrupted: files that were written are whole" in errors
    assert b"Traceback" not in errors


TWO = (
    STRANGE
    + """

class Plain(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.norm(self.drop(x) + x)
"""
)


@pytest.mark.slow
def test_fix_leaves_out_what_is_not_proved(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = write("m.py", TWO)
    result = regraft("check", "--all", "--fix", path, cwd=tmp_path)
    assert result.returncode == 1
    assert path.read_text().count("dropout_add_layer_norm(x") == 1
    assert "Strange: unproven" in result.stdout
    assert "Strange: left as it is" in result.stdout
    assert "definitions: 1 proved, 1 unproven, 0 refuted" in result.stdout
    result = regraft("check", "--all", "--fix", "--unproven", path, cwd=tmp_path)
    assert (result.returncode, path.read_text().count("dropout_add_layer_norm(x")) == (0, 2)


DRIVER = """\
import torch


def build(module):
    options = type("Options", (), {"dim": 16})
    model = torch.nn.Sequential(module.Plain(16), module.Strange(unguessable_thing=options))
    return model, [(torch.randn(2, 16),), (torch.randn(3, 16),)]
"""


@pytest.mark.slow
def test_a_driver_proves_what_cannot_be_built_without_it(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path, driver = write("m.py", TWO), write("driver.py", DRIVER)
    result = regraft("check", "--all", "--fix", "--driver", f"{driver}:build", path, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert path.read_text().count("dropout_add_layer_norm(x") == 2


def test_a_driver_is_for_one_file(write: Write, tmp_path: Path) -> None:
    paths = write("m.py", TWO), write("n.py", TWO)
    for arguments in (paths, (tmp_path,)):
        result = regraft("check", "--all", "--fix", "--driver", "driver.py:build", *arguments)
        assert (result.returncode, "is for one file" in result.stderr) == (2, True)


def test_fix_passes_over_tests_examples_and_vendored_code(write: Write, tmp_path: Path) -> None:
    names = ("tests/net.py", "examples/net.py", "pkg/third_party/net.py", "pkg/test_net.py")
    for name in names:
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    own, *secondary = [write(name, TWO) for name in ("pkg/net.py", *names)]
    result = regraft("check", "--all", "--fix", "--no-verify", tmp_path)
    assert own.read_text() != TWO
    assert [path.read_text() for path in secondary] == [TWO] * len(names)
    words = "4 files of tests, examples and vendored code not rewritten"
    assert words in result.stdout
    assert regraft("check", "--all", "--fix", "--no-verify", secondary[0]).returncode == 0
    assert secondary[0].read_text() != TWO
    regraft("check", "--all", "--fix", "--no-verify", tmp_path / "examples")
    assert secondary[1].read_text() != TWO


def test_without_verification_it_says_so(write: Write, tmp_path: Path) -> None:
    result = regraft("check", "--all", "--fix", "--no-verify", write("m.py", TWO), cwd=tmp_path)
    assert result.returncode == 0
    assert "nothing was verified" in result.stdout


@pytest.mark.slow
def test_a_certificate_and_a_second_run_from_the_cache(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    path = write("m.py", TWO)
    first = regraft("verify", "--all", "--output-format", "markdown", path, cwd=tmp_path)
    assert first.returncode == 1
    assert "1 proved, 1 unproven, 0 refuted" in first.stdout
    assert "| `Plain` | proved | bfloat16, float16, float32, float64 |" in first.stdout
    (entry,) = Path(os.environ["REGRAFT_CACHE_DIR"]).glob("??/*.verdicts")
    stamp = entry.stat().st_mtime_ns
    assert (
        regraft("verify", "--all", "--output-format", "markdown", path, cwd=tmp_path).stdout
        == first.stdout
    )
    assert entry.stat().st_mtime_ns == stamp
    regraft("verify", "--all", "--no-cache", path, cwd=tmp_path)
    assert entry.stat().st_mtime_ns == stamp
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # kernels ran in no verdict so far
    regraft("verify", "--all", path, cwd=tmp_path)
    assert len(list(Path(os.environ["REGRAFT_CACHE_DIR"]).glob("??/*.verdicts"))) == 2


def test_verify_takes_a_diff(write: Write, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write("m.py", CODE)
    (tmp_path / "wrong.diff").write_text(
        regraft("check", "--all", "--diff", "m.py", cwd=tmp_path).stdout.replace(
            "softmax(scores)", "softmax(scores * 2)"
        )
    )
    result = regraft(
        "verify", "--all", "--no-cache", "--output-format", "json", "wrong.diff", cwd=tmp_path
    )
    (verdict,) = json.loads(result.stdout)["verdicts"]
    assert (result.returncode, verdict["file"], verdict["status"]) == (1, "m.py", "refuted")
    result = regraft("verify", "--all", "nothing.diff", cwd=tmp_path)
    assert result.returncode == 2 and "nothing.diff: cannot be read" in result.stderr


def test_rules_are_selected_several_times(write: Write) -> None:
    path = write("m.py", CODE)
    both = ["--select", "adopter/softmax", "--select", "torch/rms-norm"]
    findings = json.loads(regraft("check", "--all", "--output-format", "json", *both, path).stdout)[
        "findings"
    ]
    assert {finding["rule"] for finding in findings} == {"adopter/softmax"}
    none = regraft("check", "--all", *both, "--ignore", "softmax", "--ignore", "torch/gelu", path)
    assert none.returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("regraft che", "check"),
        ("regraft verify --diff-b", "--diff-base"),
        ("regraft split --un", "--unseen"),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, expected: str) -> None:
    """`docs/commands.md` says how a shell comes to ask."""
    environment = {
        **os.environ,
        "_REGRAFT_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; sys.argv[0] = 'regraft'; from regraft.cli import entry; entry()"
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert [line.partition(",")[2] for line in result.stdout.splitlines()] == [expected]
