"""Benchmarks of rules on this machine: paired timings, peak memory, and the choice of the rules
that pay."""

from regraft.bench.measure import FEWEST, BenchError
from regraft.bench.run import Observer, Options, Result, Row, bench, calls_of, lock_of
from regraft.bench.select import Goal, limit
from regraft.bench.table import Table, as_json, as_text, closing, heading

__all__ = [
    "FEWEST",
    "BenchError",
    "Goal",
    "Observer",
    "Options",
    "Result",
    "Row",
    "Table",
    "as_json",
    "as_text",
    "bench",
    "calls_of",
    "closing",
    "heading",
    "limit",
    "lock_of",
]
