"""CPU seconds of the parts of a scan: parsing, structures, and the matching of each rule."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regraft.match import find
from regraft.scan import CompiledRule
from regraft.source import SourceError, read
from regraft.structure import Module


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
    """The parts of a scan one after the other, in a pass of its own: clocks inside a scan would slow it down."""
    result = Parts(matching={one.rule.id: 0.0 for one in rules})
    for path in files:
        started = time.process_time()
        source = read(path)
        if isinstance(source, SourceError):
            continue  # the scan reports it
        module = Module(source, inlines=inlines)
        structures = tuple(module.structures())
        result.structure += time.process_time() - started
        for one in rules:
            started = time.process_time()
            for structure in structures:
                for body in structure.bodies:
                    for pattern in one.patterns:
                        for _ in find(pattern, one.rule.syntax.where, module, structure, body):
                            pass
            result.matching[one.rule.id] += time.process_time() - started
    return result
