"""Test more programs written to break rewriting, each with the calls (`#CASE:`) that show it.

`corpus_calls/*.py` hold a class `M`. The imports are added to a file that has none, and `# layers`
stands for the constructor below. A case is a tuple of arguments, a dict at its end being keywords;
`r` is `torch.randn`, `m` the model. Results, gradients of inputs, printed text, attributes and
parameters must be the same before and after, in evaluation and in training.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse

PROGRAMS = sorted((Path(__file__).parent / "corpus_calls").glob("*.py"))
RULES, _ = compile_rules(load_rules()[0])
IMPORTS = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
LAYERS = """    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.drop = nn.Dropout(0.0)
        self.norm = nn.LayerNorm(8)
        self.dense = nn.Linear(8, 8)
        self.act = nn.GELU()
        self.flag = False
        self.kind = "a"
"""


def program(path: Path) -> tuple[str, list[str]]:
    """Return the text of a program with its imports and layers, and its cases."""
    text = path.read_bytes().decode()
    text = text if re.search(r"^(import|from) ", text, re.MULTILINE) else IMPORTS + text
    cases = re.findall(r"^#CASE: (.*)$", text, re.MULTILINE)
    return text.replace("    # layers\n", LAYERS), cases or ["(r(2, 4, 8),)"]


def outcome(code: bytes, case: str, training: bool) -> tuple[Any, str, dict[str, Any]]:
    """Return the result or exception of a call, the printed text, and the model's state
    afterwards."""
    torch = pytest.importorskip("torch")
    printed, result, model = io.StringIO(), None, None
    with contextlib.redirect_stdout(printed):
        try:
            names: dict[str, Any] = {"__name__": "prog"}
            exec(compile(code, "prog.py", "exec"), names)
            model = names["M"]()
            model.train(training)
            torch.manual_seed(1)
            arguments = eval(
                case, {"torch": torch, "nn": torch.nn, "r": torch.randn, "m": model, "ns": names}
            )
            torch.manual_seed(3)
            keywords = arguments[-1] if arguments and isinstance(arguments[-1], dict) else {}
            result = model(*(arguments[:-1] if keywords else arguments), **keywords)
            wanted = [
                argument
                for argument in arguments
                if isinstance(argument, torch.Tensor) and argument.requires_grad
            ]
            if wanted:
                first = result[0] if isinstance(result, tuple | list) else result
                weights = torch.arange(first.numel()).reshape(first.shape).sin()
                result = (
                    result,
                    torch.autograd.grad((first * weights).sum(), wanted, allow_unused=True),
                )
        except Exception as error:  # noqa: BLE001 - what a program raises is part of its outcome
            result = type(error)
    attributes = {}
    for name, module in model.named_modules() if model is not None else ():
        attributes.update(
            {
                f"{name}.{key}": value
                for key, value in vars(module).items()
                if not key.startswith("_")
            }
        )
    return (
        result,
        printed.getvalue(),
        {**attributes, **(model.state_dict() if model is not None else {})},
    )


def alike(actual: Any, expected: Any) -> bool:
    """Return whether two results are equal up to rounding."""
    torch = pytest.importorskip("torch")
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        half = actual.dtype in (torch.half, torch.bfloat16)
        kinds = (actual.shape, actual.dtype, actual.requires_grad) == (
            expected.shape,
            expected.dtype,
            expected.requires_grad,
        )
        tolerance = {"rtol": 1e-3, "atol": 2e-2} if half else {"rtol": 1e-4, "atol": 1e-5}
        return kinds and torch.allclose(
            actual.to(torch.complex128), expected.to(torch.complex128), **tolerance, equal_nan=True
        )
    if type(actual) is not type(expected):
        return False
    if isinstance(actual, tuple | list):
        return len(actual) == len(expected) and all(map(alike, actual, expected))
    if isinstance(actual, dict):
        return actual.keys() == expected.keys() and all(
            alike(actual[key], expected[key]) for key in actual
        )
    return (
        actual == expected if isinstance(actual, int | float | str | bytes | type | None) else True
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_call_gives_the_same(path: Path) -> None:
    code, cases = program(path)
    source = parse("prog.py", code.encode())
    assert isinstance(source, SourceFile)
    changed, _ = rewrite_file(check_source(source, RULES), RULES)
    rewritten_source = parse("prog.py", changed)
    assert isinstance(rewritten_source, SourceFile)
    assert rewrite_file(check_source(rewritten_source, RULES), RULES)[0] == changed, (
        "a second run changes something"
    )
    for case in cases if changed != source.data else ():
        for training in (False, True):
            before, after = (outcome(text, case, training) for text in (source.data, changed))
            assert alike(before, after), f"{case}, training={training}\n{changed.decode()}"
