"""The scanning of many files, in order: each from the cache where possible, in several processes
where wanted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regraft.scanning import CompiledRule, FileReport, check_file, collected_between, failed
from regraft.scanning.cache import Cache, decode, encode
from regraft.source.text import SourceError

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor


@dataclass(frozen=True, slots=True)
class Task:
    """The settings that the scan of any file needs; each process is given them once."""

    rules: tuple[CompiledRule, ...]
    explain: bool = False
    cache: Path | None = None


def scan_files(
    paths: Sequence[Path | SourceError], task: Task, jobs: int = 1
) -> Iterator[FileReport]:
    """Yield a report for each path, in the order of the paths; a SourceError stands for a path that
    is not there.

    Reports from the cache or another process have no patches.

    jobs  number of processes; 0 for as many as there are processors
    """
    processes = min(jobs or os.cpu_count() or 1, len(paths))
    return (
        _scan_in_processes(paths, task, processes) if processes > 1 else _scan_serially(paths, task)
    )


def _scan_serially(paths: Sequence[Path | SourceError], task: Task) -> Iterator[FileReport]:
    cache = _open_cache(task)
    yield from collected_between(
        failed(path, is_file=False) if isinstance(path, SourceError) else _scan(path, task, cache)
        for path in paths
    )
    if cache is not None:
        cache.prune()


def _open_cache(task: Task) -> Cache | None:
    """Return the cache of a task; None where it has none."""
    return Cache(task.cache, task.rules) if task.cache is not None else None


def _scan(path: Path, task: Task, cache: Cache | None) -> FileReport:
    """Return the report of one file from the cache, else from a scan, which the cache then
    stores."""
    report = cache.load(path) if cache is not None else None
    if report is None:
        report = check_file(path, task.rules, explain=task.explain)
        if cache is not None:
            cache.store(report)
    return report


def _scan_in_processes(
    paths: Sequence[Path | SourceError], task: Task, processes: int
) -> Iterator[FileReport]:
    """Yield the reports of the paths, which a pool of processes scans."""
    from concurrent.futures import ProcessPoolExecutor

    rules = {rule.rule.id: rule.rule for rule in task.rules}
    pool = ProcessPoolExecutor(processes, initializer=_start_worker, initargs=(task,))
    try:
        for path, future in [(path, _submit(pool, path)) for path in paths]:
            result = future if isinstance(future, SourceError) else _result(str(path), future)
            if isinstance(result, SourceError):
                yield failed(result, is_file=not isinstance(path, SourceError))
            else:
                yield decode(result, str(path), rules)
    finally:
        pool.shutdown(cancel_futures=True)  # also on Ctrl-C: what has not begun does not begin
    cache = _open_cache(task)
    if cache is not None:
        cache.prune()


def _submit(
    pool: ProcessPoolExecutor, path: Path | SourceError
) -> Future[dict[str, Any]] | SourceError:
    """Return the future of a file's scan; an error for a path that is one, or where the pool has
    broken."""
    from concurrent.futures.process import BrokenProcessPool

    if isinstance(path, SourceError):
        return path
    try:
        return pool.submit(_scan_encoded, path)
    except BrokenProcessPool as problem:
        return _internal_error(str(path), problem)


def _result(file: str, future: Future[dict[str, Any]]) -> dict[str, Any] | SourceError:
    """Return the encoded report of a scan, or the error that its process met."""
    problem = future.exception()
    return future.result() if problem is None else _internal_error(file, problem)


def _internal_error(file: str, problem: BaseException) -> SourceError:
    return SourceError(file, 0, 0, f"internal error: {type(problem).__name__}: {problem}")


_worker_state: tuple[Task, Cache | None] | None = None


def _start_worker(task: Task) -> None:
    """Store the task in a new process, and leave Ctrl-C to the parent."""
    global _worker_state  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker_state = task, _open_cache(task)


def _scan_encoded(path: Path) -> dict[str, Any]:
    """Return the encoded report of a file; runs in a worker process."""
    assert _worker_state is not None
    return encode(_scan(path, *_worker_state))
