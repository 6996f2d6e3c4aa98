"""Benchmarks of rules on this machine: paired timings, peak memory, and the choice of the rules
that pay."""

from regraft.benchmarking.chosen_rules_lock_file import lock_of
from regraft.benchmarking.inputs import calls_of
from regraft.benchmarking.median_intervals import FEWEST
from regraft.benchmarking.options_and_results import Observer, Options, Result, Row
from regraft.benchmarking.profile import Profile, profile_model
from regraft.benchmarking.profile_table import as_json as profile_as_json
from regraft.benchmarking.profile_table import as_text as profile_as_text
from regraft.benchmarking.rule_selection import Goal, goal_of
from regraft.benchmarking.run import bench
from regraft.benchmarking.steps import BenchError
from regraft.benchmarking.table import Table, as_json, as_text, closing, heading

__all__ = [
    "FEWEST",
    "BenchError",
    "Goal",
    "Observer",
    "Options",
    "Profile",
    "Result",
    "Row",
    "Table",
    "as_json",
    "as_text",
    "bench",
    "calls_of",
    "closing",
    "goal_of",
    "heading",
    "lock_of",
    "profile_as_json",
    "profile_as_text",
    "profile_model",
]
