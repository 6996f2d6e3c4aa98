"""What libraries do with the inputs of three pieces of Regraft's own code, and how long they take.

    pip install optree unidiff
    python benchmarks/libraries.py

Nested values (`execution/nested.py`), the names of files in a diff (`source/applied_diff.py`), and
the lines that run (`verification/child/line_tracing.py`). Times are the least of five rounds, in
processor time.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import coverage
import torch
from torch.utils import _pytree
from transformers import BertConfig
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.bert import modeling_bert

from regraft.execution.nested import iterate_leaves, map_leaves
from regraft.source.applied_diff import _NEW_PATH
from regraft.verification.child.line_tracing import Tracer

ROUNDS = 5
HEAD = "--- {}\n+++ {}\n@@ -1 +1 @@\n-a\n+b\n"
DIFFS = {
    "plain": HEAD.format("a/model.py", "b/model.py"),
    "a blank in the name": HEAD.format("a/my model.py\t2020", "b/my model.py\t2020"),
    "an escaped name": HEAD.format('"a/mod\\303\\250le.py"', '"b/mod\\303\\250le.py"'),
    "no diff": "not a diff\n",
}


class Mapping(dict):  # type: ignore[type-arg]
    """A mapping that no library has been told of."""


def processor_time(function: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call."""
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(calls):
            function()
        rounds.append((time.process_time() - started) / calls)
    return min(rounds)


def keep(leaf: Any) -> Any:
    return leaf


def compare_nested_values() -> None:
    tensor = torch.zeros(2)
    pair = collections.namedtuple("pair", "first second")
    value = {"a": [tensor, (tensor, tensor)], "b": pair(tensor, [tensor] * 70)}
    values = {
        "UserDict": collections.UserDict(a=tensor),
        "subclass of dict": Mapping(a=tensor),
        "ModelOutput": BaseModelOutput(last_hidden_state=tensor, hidden_states=(tensor, tensor)),
    }
    libraries: dict[str, tuple[Any, Any]] = {
        "own": (iterate_leaves, map_leaves),
        "torch.utils._pytree": (
            _pytree.tree_leaves,
            lambda tree, function: _pytree.tree_map(function, tree),
        ),
    }
    if importlib.util.find_spec("optree"):
        import optree

        libraries["optree"] = (
            optree.tree_leaves,
            lambda tree, function: optree.tree_map(function, tree),
        )
    for name, (leaves, rebuild) in libraries.items():
        seconds = processor_time(functools.partial(rebuild, value, keep), 2000)
        opened = [
            kind
            for kind, nested in values.items()
            if all(isinstance(leaf, torch.Tensor) for leaf in leaves(nested))
        ]
        print(f"{name:22} {1e6 * seconds:6.0f} us to rebuild, opens: {', '.join(opened) or '-'}")


def compare_diffs() -> None:
    if not importlib.util.find_spec("unidiff"):
        print("unidiff is not installed")
        return
    import unidiff

    for name, text in DIFFS.items():
        parsed = [file.target_file for file in unidiff.PatchSet(text)]
        print(f"{name:22} own: {_NEW_PATH.findall(text)}  unidiff: {parsed}")


def compare_tracing() -> None:
    torch.set_num_threads(1)
    config = BertConfig(
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        num_hidden_layers=2,
        vocab_size=99,
    )
    model = modeling_bert.BertModel(config).eval()
    ids = torch.ones(2, 8, dtype=torch.long)
    path = str(modeling_bert.__file__)
    tracer = Tracer(path, ())
    recorder = coverage.Coverage(include=[path], branch=True, data_file=None)

    def run() -> None:
        with torch.no_grad():
            model(ids)

    def run_traced() -> None:
        with tracer:
            run()

    def run_covered() -> None:
        recorder.start()
        run()
        recorder.stop()
        recorder.get_data().lines(path)

    functions = {"untraced": run, "own": run_traced, "coverage": run_covered}
    for name, function in functions.items():
        print(f"{name:22} {1e3 * processor_time(function, 30):6.1f} ms a run of a small BERT")


if __name__ == "__main__":
    compare_nested_values()
    compare_diffs()
    compare_tracing()
