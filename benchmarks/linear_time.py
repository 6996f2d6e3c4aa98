"""Time to lower and match a class against its length: sequential branches must not multiply.

    python benchmarks/linear_time.py

A class with n sequential `if`s has 2^n paths. Prints seconds for n = 25, 50, 100, 200 and the
growth per doubling.
"""

from __future__ import annotations

import time

from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules
from regraft.source.text import SourceFile, parse

HEAD = """import torch
from torch import nn


class M(nn.Module):
    def __init__(self, config):
        super().__init__()
"""


def program(branches: int) -> str:
    """A class whose `forward` has that many `if`s, each around a place that a rule matches."""
    built = "".join(
        f"        self.fc{n} = nn.Linear(8, 8)\n        self.drop{n} = nn.Dropout(0.1)\n"
        f"        self.norm{n} = nn.LayerNorm(8)\n"
        for n in range(branches)
    )
    run = "".join(
        f"        if flags[{n}]:\n            h = self.drop{n}(self.fc{n}(x))\n            x ="
        f" self.norm{n}(h + x)\n"
        for n in range(branches)
    )
    return f"{HEAD}{built}\n    def forward(self, x, flags):\n{run}        return x\n"


def seconds(branches: int) -> float:
    """The fastest of three scans of one such class."""
    rules, _ = compile_rules(load_rules()[0])
    source = parse("m.py", program(branches).encode())
    assert isinstance(source, SourceFile)
    times = []
    for _ in range(3):
        started = time.process_time()
        report = check_source(source, rules)
        times.append(time.process_time() - started)
        assert (
            sum(one.rule.id == "adopter/dropout-layernorm" for one in report.findings) == branches
        )
    return min(times)


def main() -> None:
    before = 0.0
    for branches in (25, 50, 100, 200):
        now = seconds(branches)
        print(
            f"{branches:>4} branches: {now:.3f} s"
            + (f", {now / before:.1f} times the half" if before else "")
        )
        before = now


if __name__ == "__main__":
    main()
