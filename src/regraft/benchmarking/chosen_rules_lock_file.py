"""The lock file of the rules that a benchmark chooses, with their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regraft.benchmarking.options_and_results import Options, Result
from regraft.benchmarking.rule_selection import Worth
from regraft.rules.lock_file import Lock, pin_rule
from regraft.scanning import CompiledRule


def lock_of(result: Result, target: str, options: Options, rules: Sequence[CompiledRule]) -> Lock:
    """Return the lock file of a choice."""
    assert result.chosen is not None and options.goal is not None
    by_id = {rule.rule.id: rule.rule for rule in rules}
    total = _figures(result.chosen.whole) if result.chosen.whole else {}
    pins = (pin_rule(by_id[name], _figures(worth)) for name, worth in result.chosen.worth.items())
    return Lock(
        target=target,
        goal=options.goal.kind,
        mode=options.modes[0],
        device=result.device,
        machine=result.machine,
        torch=torch.__version__,
        measured={"threads": torch.get_num_threads(), "clock": result.clock, **total},
        rules=tuple(pins),
    )


def _figures(worth: Worth) -> dict[str, Any]:
    """Return times as fast (low, median, high), and seconds and bytes with and without the
    rules."""
    pair = worth.pair
    return {
        "speed": [
            round(speed, 4) for speed in (pair.speed.low, pair.speed.median, pair.speed.high)
        ],
        "seconds": pair.new.median,
        "seconds_without": pair.old.median,
        "peak_bytes": worth.bytes,
        "peak_bytes_without": worth.bytes_without,
    }
