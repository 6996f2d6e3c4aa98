"""Show every feature of the comparison in docs/comparison.md by a command and its output.

    python benchmarks/features.py [--only WORD] > benchmarks/results/features.txt

Each command runs in a fresh copy of `examples/own-repository`, a git repository with one commit,
and has to print the words that its row names. Prints each command with the end of its output, and
last how many of the features showed; exits with 1 where one did not.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES = 6  # of each output
SOFTMAX = (
    "import torch\\ndef f(x):\\n    return torch.softmax(x, -1)  # regraft: ignore[softmax]\\n"
)
EDIT = "'s/scores + mask/scores - mask/'"
CHANGED = f"sed {EDIT} storyteller/layers.py > changed.py"
NETWORK = """
import torch
from torch import nn

class Exit(nn.Module):
    def __init__(self):
        super().__init__()
        self.early, self.late = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.early(x).relu()
        if y.sum() > 2.0:
            return y
        return self.late(y)

def build():
    torch.manual_seed(0)
    return Exit().eval(), [(torch.randn(1, 8) * size,) for size in (0.1, 3.0)]
"""
TARGET = """
import torch
from storyteller.config import Config
from storyteller.model import Storyteller

def build():
    torch.manual_seed(0)
    model = Storyteller(Config(vocabulary=256, width=64, layers=2, hidden=128, context=64))
    tokens = torch.randint(0, 256, (1, 64))
    return model, (tokens, tokens)
"""
LIVE = """
import regraft, targets
model, inputs = targets.build()
with regraft.optimize(model, inputs) as report:
    print(*(change.method for change in report.changes))
print('restored', type(model).__name__)
"""
PROBE = """
import errno, os, socket

def attempt(action):
    try:
        action()
        return "allowed"
    except OSError as error:
        return errno.errorcode[error.errno]

write = attempt(lambda: open("/usr/written", "w"))
connect = attempt(lambda: socket.create_connection(("192.0.2.1", 80), 1))
value = 1
raise RuntimeError(f"key {os.environ.get('SERVICE_KEY')}, write {write}, connect {connect}")
"""
VALID = """
import importlib.resources, json, jsonschema
schema = importlib.resources.files("regraft.report").joinpath("schemas/check.schema.json")
jsonschema.validate(json.load(open("report.json")), json.loads(schema.read_text()))
print("fits", schema.name)
"""
FILES = {
    "network.py": NETWORK,
    "targets.py": TARGET,
    "live.py": LIVE,
    "probe.py": PROBE,
    "valid.py": VALID,
}


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, the shell command that shows it, and words of its output."""

    name: str
    command: str
    words: str


FEATURES = (
    Feature("finds code by data flow, not by text", "regraft check storyteller", "torch/attention"),
    Feature("says why a place does not match", "regraft check --explain storyteller", "withheld"),
    Feature("shows a minimal diff", "regraft check --diff storyteller/layers.py", "+from regraft"),
    Feature("rewrites files", "regraft check --fix --no-verify storyteller", "0 not fixed"),
    Feature(
        "takes a rewrite back, without git",
        "regraft check --fix --no-verify storyteller >log; rm -rf .git; regraft undo",
        "taken back",
    ),
    Feature(
        "proves a rewrite by running both versions",
        "regraft verify --effort low storyteller/layers.py",
        "proved",
    ),
    Feature(
        "proves or refutes a change by anybody",
        f"{CHANGED}; regraft verify --effort low storyteller/layers.py changed.py",
        "refuted",
    ),
    Feature(
        "gives a program that shows the difference",
        f"{CHANGED}; regraft verify --effort low storyteller/layers.py changed.py >log;"
        " python $(sed -n 's/  reproducer: //p' log)",
        "differ",
    ),
    Feature(
        "proves what a branch changes",
        f"sed -i {EDIT} storyteller/layers.py; regraft verify --effort low --diff-base HEAD",
        "refuted",
    ),
    Feature("says what a rule is worth on a device", "regraft rule torch/attention", "CPU"),
    Feature(
        "leaves out what gains nothing",
        "regraft check --target cpu storyteller",
        "gain nothing on cpu",
    ),
    Feature(
        "profiles a model's definitions", "regraft profile targets.py:build", "Attention.forward"
    ),
    Feature(
        "measures rules on a model, in pairs",
        "regraft bench --packs torch/attention --no-verify --rounds 6 targets.py:build",
        "torch/attention",
    ),
    Feature(
        "rewrites a model that is alive, and restores it", "python live.py", "restored Storyteller"
    ),
    Feature("has rules as text, whose pages are tests", "regraft test torch/rotary", "1 rule, "),
    Feature("starts a rule of your own", "regraft new rule mine/fast-silu", "fast-silu"),
    Feature(
        "reads a configuration, and names the nearest key",
        "echo 'selct = []' > regraft.toml; regraft check storyteller 2>&1",
        "select",
    ),
    Feature(
        "ignores rules in files",
        'printf \'[per-file-ignores]\\n"*" = ["torch", "adopter"]\\n\' > regraft.toml;'
        " regraft check storyteller",
        "0 findings",
    ),
    Feature(
        "ignores places by comments, and reports unused ones",
        f"printf '{SOFTMAX}x = 1  # regraft: ignore\\n' > s.py; regraft check --all s.py 2>&1",
        "unused: no rule finds anything here",
    ),
    Feature(
        "accepts what is there, and fails for new places",
        "regraft baseline write storyteller; regraft check --baseline regraft.baseline.json"
        " storyteller; echo exit $?",
        "exit 0",
    ),
    Feature("exits with 0, 1 or 2", "regraft check storyteller >log; echo exit $?", "exit 1"),
    Feature(
        "prints JSON with a schema",
        "regraft check --output-format json storyteller > report.json; python valid.py",
        "fits check.schema.json",
    ),
    Feature("prints SARIF with fixes", "regraft check --output-format sarif storyteller", "fixes"),
    Feature(
        "annotates on GitHub and GitLab, and prints JUnit",
        "for form in github gitlab junit; do regraft check --output-format $form storyteller | head"
        " -c 200; done",
        "::warning",
    ),
    Feature(
        "has a hook for pre-commit and an action",
        f"cat {ROOT}/.pre-commit-hooks.yaml; REGRAFT_PATHS=storyteller {ROOT}/scripts/action.sh",
        "::warning",
    ),
    Feature(
        "reads standard input",
        "regraft check --diff --stdin-filename storyteller/layers.py - < storyteller/layers.py",
        "+from regraft",
    ),
    Feature(
        "writes a certificate for a pull request",
        "regraft verify --effort low --output-format markdown storyteller/layers.py",
        "| definition | verdict |",
    ),
    Feature(
        "writes rewritten code that needs no package",
        "regraft check --fix --no-verify --vendor storyteller >log; head -3"
        " storyteller/regraft_ops.py",
        "written out for the model beside this file",
    ),
    Feature(
        "scans without PyTorch",
        "python -c \"import sys, regraft; regraft.check('storyteller');"
        " print('torch' in sys.modules)\"",
        "False",
    ),
    Feature(
        "splits a network that decides by values",
        "regraft split --no-cache -o out network.py:build",
        "2 sub-networks",
    ),
    Feature(
        "contains the code that it runs",
        "sed 's/= 1/= 1 + 0/' probe.py > changed.py; SERVICE_KEY=secret regraft verify probe.py"
        " changed.py",
        "key None, write EROFS, connect ENETUNREACH",
    ),
)


def show(feature: Feature, folder: Path) -> bool:
    """Run the command of a feature in a fresh repository, print it with the end of its output, and
    return whether the words are there."""
    repository = folder / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(ROOT / "examples/own-repository", repository)
    for name, text in FILES.items():
        (repository / name).write_text(text)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "REGRAFT_CACHE_DIR": str(folder / "cache"),
        "PYTHONWARNINGS": "ignore",
    }
    commit = "git init -q && git add -A && git -c user.name=a -c user.email=a@b.c commit -q -m a"
    subprocess.run(commit, shell=True, cwd=repository, check=True)
    run = subprocess.run(
        feature.command,
        shell=True,
        cwd=repository,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = run.stdout.replace(f"{repository}/", "").replace(str(ROOT), "…")
    lines = [line[:150] for line in output.rstrip().splitlines()]
    holding = [line for line in lines if feature.words in line][:1]
    end = lines[-LINES:]
    print(f"{feature.name}\n$ {feature.command}")
    for line in end if holding and holding[0] in end else [*holding, *end[-LINES + 1 :]]:
        print(f"  {line}")
    is_shown = feature.words in run.stdout
    print("" if is_shown else f"  NOT SHOWN: {feature.words}\n", flush=True)
    return is_shown


def main() -> int:
    """Print all features and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORD", help="only features with it")
    options = parser.parse_args()
    chosen = [feature for feature in FEATURES if options.only in feature.name]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("regraft", "torch"))
    print(f"Python {platform.python_version()}, {versions}, {platform.machine()}\n")
    with tempfile.TemporaryDirectory() as folder:
        shown = sum(show(feature, Path(folder)) for feature in chosen)
    print(f"{shown} of {len(chosen)} features shown")
    return 0 if shown == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
