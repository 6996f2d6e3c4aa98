"""Checkouts of public repositories at pinned commits: modules imported from them unmodified, and
networks of them split, compared and measured."""

from __future__ import annotations

import argparse
import functools
import importlib
import multiprocessing
import pathlib
import re
import shlex
import subprocess
import sys
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from unittest import mock

import run
from torch import nn

import regraft
from regraft.splitting.checking.result_difference import difference


@dataclass(frozen=True)
class Repository:
    """A public repository at a commit. packages: what its files import and does without."""

    name: str
    commit: str
    packages: tuple[str, ...] = ()

    def folder(self, repositories: pathlib.Path) -> pathlib.Path:
        """Return where its checkout lies in the folder of checkouts."""
        return repositories / self.name.replace("/", "+")


def problem_of(repository: Repository, repositories: pathlib.Path) -> str:
    """Return what is wrong with a checkout, and what to do; "" where it is as it has to be."""
    folder = repository.folder(repositories)
    place = shlex.quote(str(folder))
    checkout = f"git -C {place} checkout {repository.commit}"
    if not folder.is_dir():
        clone = f"git clone https://github.com/{repository.name} {place}"
        return f"{repository.name} is missing; get it with\n  {clone} && {checkout}"
    git = functools.partial(subprocess.run, capture_output=True, text=True, check=True, cwd=folder)
    commit = git(["git", "rev-parse", "HEAD"]).stdout.strip()
    if commit != repository.commit:
        return f"{repository.name} is at {commit}; change that with\n  {checkout}"
    changed = git(["git", "status", "--porcelain", "--untracked-files=no"]).stdout.split("\n")
    changed = [line for line in changed if line.endswith(".py")]
    return f"{repository.name} is modified: {', '.join(changed)}" if changed else ""


def import_module(
    name: str,
    folder: pathlib.Path,
    packages: tuple[str, ...],
    stand_ins: Mapping[str, Any] | None = None,
) -> types.ModuleType:
    """Import a module of a checkout, with stand-ins for packages during the import.

    stand_ins: the stand-ins of some packages; the others are mocks.
    """
    replaced: dict[str, Any] = {package: mock.MagicMock(name=package) for package in packages}
    replaced.update(stand_ins or {})
    for package, stand_in in replaced.items():
        parent, _, attribute = package.rpartition(".")
        if parent in replaced:  # `import a.b as c` takes the attribute of `a`
            setattr(replaced[parent], attribute, stand_in)
    sys.path.insert(0, str(folder))
    with mock.patch.dict(sys.modules):
        sys.modules.update(replaced)
        module = importlib.import_module(name)
        own = {
            key: value
            for key, value in sys.modules.items()
            if str(folder) in str(getattr(value, "__file__", ""))
        }
    sys.modules.update(own)
    return module


def compare(variant: Callable, calls: list[tuple], results: list[Any]) -> str:
    """Describe on how many calls a variant gives the original's result, on how many it raises
    ValueError, and the first difference."""
    raised, differing = 0, []
    for call, expected in zip(calls, results, strict=True):
        try:
            text = difference(variant(*call), expected)
        except ValueError:  # sizes for which it was not split
            raised += 1
            continue
        differing += [text] if text else []
    equal = str(len(calls) - raised - len(differing)) + (f", raises on {raised}" if raised else "")
    return equal + (f" ({len(differing)} differ, first: {differing[0]})" if differing else "")


def takes_sizes(variant: Callable, call: tuple) -> bool:
    """Return whether a variant takes a call, rather than raise ValueError for its sizes."""
    try:
        variant(*call)
    except ValueError:
        return False
    return True


class BranchingNetwork(Protocol):
    """What both tables say of a network.

    branches_of: gives the branches that a result shows. branch_count: the number of branches that
    there are. unseen: what `split` does with sides that no input takes.
    """

    repository: Repository
    branches_of: Callable[[Any], set]
    branch_count: int
    unseen: str


def measure_split(
    name: str,
    model: nn.Module,
    examples: list[tuple],
    compared: list[tuple],
    network: BranchingNetwork,
    with_file: bool = True,
) -> dict[str, float] | None:
    """Split one network, compare, measure, print a line; return eager divided by each variant, None
    where it is refused. with_file: whether the network is also made one file."""
    results = [model(*call) for call in compared]
    branches = set().union(*map(network.branches_of, results))
    try:
        split = regraft.split(model, examples, unseen=network.unseen, cache=False)
    except regraft.Unsplittable as problem:
        print(f"{name:20} {run.refusal(problem)}", flush=True)
        return None
    variants = {"eager": model, "split": split}
    single = ""
    if with_file:
        single = run.as_file(model, examples, types.SimpleNamespace(UNSEEN=network.unseen))
    if not isinstance(single, str):
        variants["single"] = single
    equal = {key: compare(variants[key], compared, results) for key in list(variants)[1:]}
    # on a machine that is not idle, wall-clock time is that of the other work
    timed = [call for call in compared if takes_sizes(split, call)][:12]
    times = run.fastest(variants, timed, repeats=10, clock=time.process_time)
    report, note = split.report, f"  {single}" if isinstance(single, str) and single else ""
    print(
        f"{name:20} {'  '.join(f'{key} {time:7.3f}' for key, time in times.items())}"
        f"  eager/split {times['eager'] / times['split']:5.2f}  sub-networks"
        f" {report.subnetworks:2}  models {report.models:2}  islands {len(report.islands)}"
        f"  sides run {report.sides_run}/{report.sides}  checked on {report.inputs_checked}"
        f"  equal on {', '.join(f'{text} ({key})' for key, text in equal.items())}"
        f" of {len(compared)}  branches taken {len(branches)}/{network.branch_count}"
        f"  at a threshold {len(report.at_threshold)}  within rounding {len(report.rounding)}"
        f"  build {report.seconds:.1f} s" + note,
        flush=True,
    )
    return {key: times["eager"] / time for key, time in times.items()}


def run_networks(
    networks: Mapping[str, BranchingNetwork],
    measure: Callable[[str, pathlib.Path], dict[str, float] | None],
    description: str,
) -> int:
    """Measure the networks whose names fit, each in a process of its own; return 2 where a checkout
    is not as it has to be.

    measure: gets the name of a network and the folder of checkouts. description: the script's
    docstring.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--repositories", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="a regular expression for names of networks")
    options = parser.parse_args()
    names = [name for name in networks if re.search(options.only, name)]
    needed = dict.fromkeys(networks[name].repository for name in names)
    problems = [problem_of(repository, options.repositories) for repository in needed]
    if any(problems):
        print("\n".join(filter(None, problems)), file=sys.stderr)
        return 2
    run.print_head("one thread, milliseconds of processor time")
    jobs = [(name, options.repositories.resolve()) for name in names]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        ratios = processes.starmap(measure, jobs, chunksize=1)
    run.print_means(ratios)
    return 0
