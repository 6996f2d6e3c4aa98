"""The settings of a project, and the keys of the configuration file that state them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from regraft.source import line_length
from regraft.source.path_patterns import PathPatterns

TargetName = Literal["auto", "cpu", "cuda"]
Value = Callable[[object, Path], Any]
MOST_PROCESSES = 1024
MOST_SECONDS = 10_000_000  # a hundred days


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in effect where the command line says nothing else.

    path              the configuration file; None without one
    lines             the line of each key that the file states and no option replaces; 0 where it
                      could not be found
    select, ignore    selectors of rules; None for the rules that are on by default
    exclude           files that are not scanned
    per_file_ignores  selectors of rules that are ignored in the files of a pattern
    rules             directories with packs of rules
    baseline          the file of the findings that the project accepts
    driver            the function that builds the model, for the files of a pattern
    python            the interpreter that runs both versions; None for the present one
    time_limit        seconds of processor time for each verified file
    target            the device for which rules have to pay; "auto" for that of this machine
    applies_all       whether rules apply that do not pay there, or that nobody has measured
    line_length       characters in a line of rewritten code; None for the number that the project's
                      formatter or the file has
    """

    path: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    exclude: tuple[PathPatterns, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[Path, ...] = ()
    baseline: Path | None = None
    respect_gitignore: bool = True
    unsafe: bool = False
    jobs: int = 1
    driver: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    keep: tuple[str, ...] = ()
    time_limit: float = 300.0
    effort: Literal["low", "default", "high"] = "default"
    contract: Literal["strict", "results"] = "strict"
    target: TargetName = "auto"
    applies_all: bool = False
    line_length: int | None = None

    def selecting(self, select: tuple[str, ...] | None, ignore: tuple[str, ...] | None) -> Settings:
        """Return the settings with stated selectors: `select` replaces what the file selects and
        ignores, `ignore` what it ignores; None leaves the file's."""
        settings = self
        if select is not None:
            stated = settings.without_lines("select", "ignore")
            settings = replace(stated, select=select, ignore=())
        if ignore is not None:
            settings = replace(settings.without_lines("ignore"), ignore=ignore)
        return settings

    def without_lines(self, *keys: str) -> Settings:
        """Return the settings where options replace these keys of the file."""
        lines = {key: line for key, line in self.lines.items() if key not in keys}
        return replace(self, lines=lines)

    def ignored_in(self, file: Path) -> tuple[str, ...]:
        """Return the selectors of the rules that are ignored in a file."""
        return tuple(
            selector
            for pattern, selectors in self.per_file_ignores.items()
            if self._fits(pattern, file)
            for selector in selectors
        )

    def driver_of(self, file: Path) -> str | None:
        """Return the driver of a file, by the last pattern that fits it; None without one."""
        drivers = [driver for pattern, driver in self.driver.items() if self._fits(pattern, file)]
        return drivers[-1] if drivers else None

    def _fits(self, pattern: str, file: Path) -> bool:
        base = self.path.parent if self.path is not None else Path()
        return PathPatterns(base, (pattern,)).match(file)


def _texts(value: object, _: Path) -> tuple[str, ...]:
    """Return a list of texts, or a single text as one."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ValueError("a list of texts")


def _selectors(value: object, file: Path) -> tuple[str, ...]:
    """Return the selectors of a list; raise ValueError for an empty list, which selects nothing."""
    selectors = _texts(value, file)
    if not all(selectors) or not selectors:
        raise ValueError('a list of rules or packs, such as ["torch", "liger/rms-norm"]')
    return selectors


def _patterns(value: object, file: Path) -> tuple[PathPatterns, ...]:
    """Return the patterns of a list, which are relative to the folder of the file."""
    patterns = PathPatterns(file.parent, _texts(value, file))
    patterns.check()
    return (patterns,)


def _directories(value: object, file: Path) -> tuple[Path, ...]:
    """Return directories, which are relative to the folder of the file."""
    directories = tuple(file.parent / text for text in _texts(value, file))
    for directory in directories:
        if not directory.is_dir():
            raise ValueError(f"a directory that exists; there is no {directory}")
    return directories


def _file(value: object, file: Path) -> Path:
    """Return the path of a file, which is relative to the folder of the configuration file."""
    if not isinstance(value, str) or not value:
        raise ValueError("the path of a file")
    return file.parent / value


def _boolean(value: object, _: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _process_count(value: object, _: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_PROCESSES:
        raise ValueError(f"a number of processes up to {MOST_PROCESSES}, 0 for all cores")
    return value


def seconds(value: object) -> float:
    """Return a time limit; raise ValueError, with what it has to be, for any other value (NaN is
    one)."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= MOST_SECONDS
    ):
        raise ValueError(f"a number of seconds above 0 and at most {MOST_SECONDS}")
    return float(value)


def check_time_limit(value: object) -> None:
    """Raise ValueError where a parameter `time_limit` is no time limit."""
    try:
        seconds(value)
    except ValueError as error:
        raise ValueError(f"time_limit has to be {error}; it is {value!r}") from error


def _seconds(value: object, _: Path) -> float:
    return seconds(value)


def _texts_by_pattern(value: object, file: Path) -> Mapping[str, tuple[str, ...]]:
    """Return a table of lists of texts by a pattern of files."""
    return {pattern: _texts(texts, file) for pattern, texts in _table(value, file).items()}


def _drivers(value: object, file: Path) -> Mapping[str, str]:
    """Return a table of drivers by a pattern of files; a driver in a file is relative to the folder
    of the configuration file."""
    return {
        pattern: _driver(driver, file.parent) for pattern, driver in _table(value, file).items()
    }


def _driver(value: object, folder: Path) -> str:
    module, _, function = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not module or not function:
        raise ValueError('a function written "FILE.py:FUNCTION" or "MODULE:FUNCTION"')
    return f"{(folder / module).resolve()}:{function}" if module.endswith(".py") else str(value)


def _table(value: object, file: Path) -> Mapping[str, object]:
    """Return a table whose keys are patterns of files."""
    if not isinstance(value, dict):
        raise ValueError('a table by patterns of files, such as { "models/net.py" = … }')
    PathPatterns(file.parent, tuple(value)).check()
    return value


def _interpreter(value: object, file: Path) -> str:
    """Return the path of an interpreter; one with a slash is relative to the folder of the file."""
    if not isinstance(value, str) or not value:
        raise ValueError("the path of an interpreter")
    return str(file.parent / value) if "/" in value else value


def _losses(value: object, file: Path) -> tuple[str, ...]:
    words = ("script", "fx", "order")
    losses = _texts(value, file)
    if not set(losses) <= set(words):
        raise ValueError(f"a list of {', '.join(words)}")
    return losses


def _line_length(value: object, _: Path) -> int:
    lengths = line_length.LENGTHS
    if not isinstance(value, int) or value not in lengths:
        raise ValueError(f"a whole number from {lengths.start} to {lengths.stop - 1}")
    return value


def _choice(*words: str) -> Value:
    """Return a function that accepts one of the words."""

    def choose(value: object, _: Path) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return choose


# what each key accepts; its field in `Settings` has underscores for hyphens
KEYS: Mapping[str, Value] = MappingProxyType(
    {
        "select": _selectors,
        "ignore": _texts,
        "exclude": _patterns,
        "per-file-ignores": _texts_by_pattern,
        "rules": _directories,
        "baseline": _file,
        "respect-gitignore": _boolean,
        "unsafe": _boolean,
        "jobs": _process_count,
        "driver": _drivers,
        "python": _interpreter,
        "keep": _losses,
        "time-limit": _seconds,
        "effort": _choice("low", "default", "high"),
        "contract": _choice("strict", "results"),
        "target": _choice(*get_args(TargetName)),
        line_length.KEY: _line_length,
    }
)
