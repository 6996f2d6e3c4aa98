"""Scanning many files: each from the cache where possible, in several processes where wanted, always in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.scanning import CompiledRule, FileReport, check_file, collected_between, failed
from regraft.scanning.cache import Cache, decode, encode
from regraft.source.text import SourceError


@dataclass(frozen=True, slots=True)
class Task:
    """What a scan of any file needs; processes get it once."""

    rules: tuple[CompiledRule, ...]
    explain: bool = False
    cache: Path | None = None


def scan_files(items: Sequence[Path | SourceError], task: Task, jobs: int = 1) -> Iterator[FileReport]:
    """A report for each path, in the order of the paths; reports from the cache or another process have no patches.

    jobs  number of processes; 0 for as many as there are processors
    """
    processes = min(jobs or os.cpu_count() or 1, len(items))
    return _in_processes(items, task, processes) if processes > 1 else _one_by_one(items, task)


def _one_by_one(items: Sequence[Path | SourceError], task: Task) -> Iterator[FileReport]:
    cache = _open(task)
    yield from collected_between(
        failed(item) if isinstance(item, SourceError) else _scan(item, task, cache) for item in items
    )
    if cache is not None:
        cache.prune()


def _open(task: Task) -> Cache | None:
    return Cache(task.cache, task.rules) if task.cache is not None else None


def _scan(path: Path, task: Task, cache: Cache | None) -> FileReport:
    report = cache.load(path) if cache is not None else None
    if report is None:
        report = check_file(path, task.rules, explain=task.explain)
        if cache is not None:
            cache.store(report)
    return report


def _in_processes(items: Sequence[Path | SourceError], task: Task, processes: int) -> Iterator[FileReport]:
    rules = {one.rule.id: one.rule for one in task.rules}
    pool = ProcessPoolExecutor(processes, initializer=_start, initargs=(task,))
    try:
        for path, running in [(item, _submit(pool, item)) for item in items]:
            result = running if isinstance(running, SourceError) else _result(str(path), running)
            yield failed(result) if isinstance(result, SourceError) else decode(result, str(path), rules)
    finally:
        pool.shutdown(cancel_futures=True)  # also on Ctrl-C: what has not begun does not begin
    cache = _open(task)
    if cache is not None:
        cache.prune()


def _submit(pool: ProcessPoolExecutor, item: Path | SourceError) -> Future[dict[str, Any]] | SourceError:
    if isinstance(item, SourceError):
        return item
    try:
        return pool.submit(_work, item)
    except BrokenProcessPool as problem:
        return _internal(str(item), problem)


def _result(file: str, running: Future[dict[str, Any]]) -> dict[str, Any] | SourceError:
    problem = running.exception()
    return running.result() if problem is None else _internal(file, problem)


def _internal(file: str, problem: BaseException) -> SourceError:
    return SourceError(file, 0, 0, f"internal error: {type(problem).__name__}: {problem}")


_worker: tuple[Task, Cache | None] | None = None


def _start(task: Task) -> None:
    """In a new process: remember the task; Ctrl-C is the parent's to handle."""
    global _worker  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker = task, _open(task)


def _work(path: Path) -> dict[str, Any]:
    assert _worker is not None
    return encode(_scan(path, *_worker))
