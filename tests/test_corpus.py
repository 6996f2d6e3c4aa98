"""Test programs written to break rewriting: each must give and print equal results before and
after.

`corpus/*.py` hold a class `M` with `forward(x, res)`. The imports are added to a file that has
none, and `# layers` stands for the constructor below.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse

PROGRAMS = sorted(
    path
    for path in (Path(__file__).parent / "corpus").glob("*.py")
    if sys.version_info >= (3, 11) or b"except*" not in path.read_bytes()
)
RULES, _ = compile_rules(load_rules()[0])
IMPORTS = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
LAYERS = """    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(4)
        self.dense = nn.Linear(4, 4)
        self.act = nn.GELU()
        self.flag = True
        self.h = torch.arange(8.).reshape(2, 4)
"""


def program(path: Path) -> str:
    """Return the text of a program with its imports and layers."""
    code = path.read_bytes().decode()
    code = code.replace("    # layers\n", LAYERS)
    return code if re.search(r"^(import|from) ", code, re.MULTILINE) else IMPORTS + code


def outcome(code: bytes, name: str) -> tuple[str, str]:
    """Return the results or exceptions of two calls in evaluation and in training, and the printed
    text."""
    torch = pytest.importorskip("torch")
    printed = io.StringIO()
    results: list[Any] = []
    with contextlib.redirect_stdout(printed):
        try:
            namespace: dict[str, Any] = {"__name__": name}
            exec(compile(code, f"{name}.py", "exec"), namespace)
            model = namespace["M"]()
            torch.manual_seed(1)
            x, residual = torch.randn(2, 4), torch.randn(2, 4)
            for training in (False, True):
                model.train(training)
                torch.manual_seed(2)
                results.append(model.forward(x.clone(), residual.clone()))
        except Exception as error:  # noqa: BLE001 - what a program raises is part of its outcome
            results.append(error)
    return tuple(
        re.sub(r" at 0x\w+|grad_fn=<\w+>", "", text) for text in (repr(results), printed.getvalue())
    )  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_results_stay(path: Path) -> None:
    source = parse(path.name, program(path).encode())
    assert isinstance(source, SourceFile)
    changed, _ = rewrite_file(check_source(source, RULES), RULES)
    assert outcome(changed, path.stem) == outcome(source.data, path.stem)
    rewritten_source = parse(path.name, changed)
    assert isinstance(rewritten_source, SourceFile)
    assert rewrite_file(check_source(rewritten_source, RULES), RULES)[0] == changed


def test_many_of_them_are_rewritten() -> None:
    """A corpus that nothing happens to proves nothing."""
    changed = 0
    for path in PROGRAMS:
        source = parse(path.name, program(path).encode())
        assert isinstance(source, SourceFile)
        changed += rewrite_file(check_source(source, RULES), RULES)[0] != source.data
    assert changed >= 30
