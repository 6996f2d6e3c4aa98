"""Whether the tests of public repositories pass after Regraft has rewritten them as before.

    python benchmarks/unseen/own_tests.py --repositories DIR [--python PATH] [--only REGEX]

DIR holds a checkout of each repository as OWNER+NAME, as for `run.py`; missing ones are named, with
the commands that make them. Each repository is copied, and `regraft check --fix --all --no-verify`
rewrites the copy: also what gains nothing, and what a proof would have withheld. PATH is a Python
with pytest and the packages that the repositories import. Prints, for each repository, how many
places were rewritten, the last line of pytest before and after, and each test that passed before
and does not pass after. Exits with 1 where there is such a test or no test ran.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from run import missing_checkouts

SECONDS = 1500.0  # for each run of a repository's tests
SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at a commit, with the arguments of pytest for its tests of models and layers;
    `environment` is added to the environment of the tests."""

    repo: str
    commit: str
    tests: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """Return the name of the repository's checkout."""
        return self.repo.replace("/", "+")


REPOSITORIES = (
    Repository("lucidrains/egnn-pytorch", "d3ba97d5b2540085cf8e02c838ebf5e42071697f", ("tests",)),
    Repository("lucidrains/vit-pytorch", "69d24fe9e3024c0d4b02761123b8583a24ebed1e", ("tests",)),
    Repository(
        "OpenNMT/OpenNMT-py",
        "97111d97551c24857076a4102eabdb468b35cff4",
        tuple(
            f"onmt/tests/test_{name}.py"
            for name in (
                "attention",
                "models",
                "beam_search",
                "greedy_search",
                "copy_generator",
                "structured_attention",
                "embeddings",
            )
        ),
    ),
    Repository(
        "pyg-team/pytorch_geometric",
        "5c6461b2305ad068a6d61165b3c55852a11aaa41",
        tuple(
            f"test/nn/{name}"
            for name in (
                "conv",
                "aggr",
                "models",
                "dense",
                "norm",
                "pool",
                "attention",
                "functional",
                "unpool",
            )
        ),
    ),
    Repository(
        "rtqichen/torchdiffeq",
        "657943acefa826ef04c025ebeb1ff5e9d60dc268",
        tuple(f"tests/{name}_tests.py" for name in ("api", "gradient", "norm", "event")),
    ),
    Repository(
        "KevinMusgrave/pytorch-metric-learning",
        "216a792c22b0154d3d3bf008a7317edc7d677e71",
        ("tests/losses", "tests/distances", "tests/regularizers"),
        (("TEST_DEVICE", "cpu"),),
    ),
    Repository(
        "asteroid-team/asteroid",
        "92c8d83a9dbe7c3afd1cd097e31254e0b4f82881",
        ("tests/masknn", "tests/losses", "tests/dsp", "tests/complex_nn_test.py", "tests/models"),
    ),
    Repository(
        "kornia/kornia",
        "b4f5a78a13891c7ac4c1cd9695941380273e981d",
        ("tests/contrib", "tests/feature", "tests/models"),
    ),
    Repository(
        "speechbrain/speechbrain",
        "9c826ef3937bac885c8a6ca86c6889a30f256fb5",
        ("tests/unittests",),
    ),
    Repository(
        "facebookresearch/pytorchvideo",
        "f3142bb05cdb56af0704ab6f0adfb0c7bbafe4a0",
        tuple(
            f"tests/test_{name}.py"
            for name in (
                "models_head",
                "layers_attention",
                "layers_mlp",
                "models_vision_transformers",
                "models_resnet",
                "models_x3d",
                "models_slowfast",
                "models_csn",
                "losses_soft_target_cross_entropy",
                "layers_convolutions",
                "layers_positional_encoding",
                "layers_squeeze_excitation",
                "fuse_bn",
                "models_masked_multistream",
                "simclr",
                "models_byol",
                "models_memory_bank",
            )
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a repository's tests: the last line of pytest, and the outcome of each test by its
    name."""

    summary: str
    outcome_by_test: dict[str, str]


def main() -> int:
    """Print what the tests of each repository say before and after; return the exit status."""
    options = parse_arguments()
    chosen = [entry for entry in REPOSITORIES if re.search(options.only, entry.repo)]
    missing = list(missing_checkouts(chosen, options.repositories))
    print("".join(f"{line}\n" for line in missing), end="")
    are_equal = [
        compare(repository, checkout, options.python)
        for repository in chosen
        if (checkout := options.repositories / repository.folder).is_dir()
    ]
    return int(bool(missing) or not all(are_equal))


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repositories", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has pytest and the repositories' packages (default: this one)",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="only these repositories")
    return parser.parse_args()


def compare(repository: Repository, checkout: Path, python: str) -> bool:
    """Print the comparison of a repository; return whether every test that passed before passes
    after, and at least one did."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, repository.folder)
        shutil.copytree(checkout, copy, symlinks=True)
        (copy / ".git").mkdir(exist_ok=True)  # the mark of a repository, where it is no clone
        before = run_tests(repository, copy, python)
        rewritten = rewrite(copy)
        after = run_tests(repository, copy, python)
    lost = [
        test
        for test, outcome in before.outcome_by_test.items()
        if outcome == "PASSED" and after.outcome_by_test.get(test) != "PASSED"
    ]
    print(f"{repository.repo} at {repository.commit[:8]}: {rewritten} places rewritten")
    print(f"    before: {before.summary}\n    after:  {after.summary}")
    print("".join(f"    lost: {test}\n" for test in lost), end="", flush=True)
    return not lost and "PASSED" in before.outcome_by_test.values()


def rewrite(folder: Path) -> str:
    """Rewrite all files of a repository but tests, examples and vendored code; return the number of
    rewritten places as text, or the message where there is none."""
    command = (sys.executable, "-m", "regraft", "check", "--fix", "--all", "--no-verify", ".")
    result = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    count = re.search(r"(\d+) fixed", result.stdout)
    return count[1] if count else f"no ({(result.stdout + result.stderr).strip()[-200:]})"


def run_tests(repository: Repository, folder: Path, python: str) -> Run:
    """Run a repository's tests in one process on one thread and return what pytest says."""
    paths = (folder, folder / "src", SOURCE)
    command = (python, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--no-header")
    options = ("--override-ini", "addopts=", *repository.tests)
    try:
        output = subprocess.run(
            (*command, *options),
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((*map(str, paths), *_inherited_paths())),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
                **dict(repository.environment),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        ).stdout
    except subprocess.TimeoutExpired:
        return Run(f"not finished in {SECONDS:.0f} s", {})
    lines = output.splitlines()
    outcomes = (re.match(r"(PASSED|FAILED|ERROR) (\S+)", line) for line in lines)
    summary = re.sub(r" in [\d.]+s.*", "", lines[-1]) if lines else "no output"
    return Run(summary, {match[2]: match[1] for match in outcomes if match})


def _inherited_paths() -> tuple[str, ...]:
    """Return the folders of the caller's PYTHONPATH."""
    return tuple(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


if __name__ == "__main__":
    sys.exit(main())
