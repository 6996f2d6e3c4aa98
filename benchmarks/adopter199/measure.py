"""CPU seconds of the parts of a scan: parsing, structures, and the matching of each rule."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regraft.matching.matcher import find_matches
from regraft.scanning import CompiledRule
from regraft.source.text import SourceError, read
from regraft.structure import Module, Structure


def parse_seconds(files: Iterable[Path]) -> float:
    """CPU seconds of `ast.parse` alone: what any tool that reads Python must pay."""
    seconds = 0.0
    for path in files:
        text = path.read_bytes()
        started = time.process_time()
        ast.parse(text)
        seconds += time.process_time() - started
    return seconds


@dataclass(slots=True)
class Parts:
    """CPU seconds for reading and lowering all files, and for matching by rule."""

    structure: float = 0.0
    matching: dict[str, float] = field(default_factory=dict)


def parts(files: Iterable[Path], rules: Sequence[CompiledRule], inlines: bool = True) -> Parts:
    """The parts of a scan, in a pass of its own: `scan` interleaves them."""
    result = Parts(matching={one.rule.id: 0.0 for one in rules})
    for path in files:
        started = time.process_time()
        source = read(path)
        if isinstance(source, SourceError):
            continue  # the scan reports it
        module = Module(source, inlines=inlines)
        for structure in module.structures():
            result.structure += time.process_time() - started
            for one in rules:
                result.matching[one.rule.id] += _matching(one, module, structure)
            started = time.process_time()
        result.structure += time.process_time() - started
    return result


def _matching(rule: CompiledRule, module: Module, structure: Structure) -> float:
    started = time.process_time()
    for body in structure.bodies:
        for pattern in rule.patterns:
            for _ in find_matches(pattern, rule.rule.syntax.where, module, structure, body):
                pass
    return time.process_time() - started
