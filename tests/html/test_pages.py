"""Test the HTML reports as texts: they hold what the JSON output holds, and nothing that needs
another file or runs what a source says."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from command_line import regraft
from regraft.report.html.bench_page import bench_page
from regraft.report.html.evidence import verify_page
from regraft.report.html.side_by_side import hunks
from regraft.report.html.split_page import split_page

OWN_REPOSITORY = Path(__file__).parents[2] / "examples" / "own-repository"
HOSTILE = """
import torch


def weights(scores):
    note = "</script><script>alert(1)</script>"  # <b>&amp; {{ 7 * 7 }} é
    return torch.softmax(scores, dim=-1), "<img src=x onerror=alert(2)>"
"""


class Elements(HTMLParser):
    """The tags, ids and addresses of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in ("href", "src"):
                self.addresses.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def check_elements(*arguments: object) -> Elements:
    """Return the elements of the page that a check writes."""
    return Elements(regraft("check", "--no-lock", "--output-format", "html", *arguments).stdout)


def test_every_finding_has_a_card_with_its_place_and_diff() -> None:
    document = json.loads(
        regraft("check", "--no-lock", "--output-format", "json", OWN_REPOSITORY).stdout
    )
    page = check_elements(OWN_REPOSITORY)
    assert document["findings"]
    for finding in document["findings"]:
        assert page.ids[f"finding-{finding['fingerprint']}"] == 1
        assert f"{finding['file']}:{finding['start']['line']}:" in page.text
    assert "rolled_rotary(" in page.text
    assert max(page.ids.values()) == 1


def test_a_page_needs_no_other_file_and_its_links_lead_somewhere() -> None:
    page = check_elements("--explain", "--all", OWN_REPOSITORY)
    assert page.addresses
    for address in page.addresses:
        assert address.startswith("#")
        assert page.ids[address[1:]] == 1, address
    assert not page.tags.keys() & {"link", "img", "iframe"}


def test_sources_are_shown_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE)
    page = check_elements("--all", path)
    assert page.tags["script"] == 1
    assert not page.tags["img"]
    assert '"</script><script>alert(1)</script>"  # <b>&amp; {{ 7 * 7 }} é' in page.text


def test_findings_that_gain_most_come_first() -> None:
    page = regraft("check", "--no-lock", "--all", "--output-format", "html", OWN_REPOSITORY).stdout
    gains = [float(gain) for gain in re.findall(r"<p>Worth: .* best ([\d.]+) times", page)]
    assert len(gains) > 2
    assert gains == sorted(gains, reverse=True)


def test_equal_findings_have_different_anchors(tmp_path: Path) -> None:
    code = "import torch\n\n\ndef f(x):\n    return torch.softmax(x, -1)\n"
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(code)
    page = check_elements("--all", tmp_path)
    cards = [name for name in page.ids if name.startswith("finding-")]
    assert len(cards) == 2
    assert max(page.ids.values()) == 1


def test_a_check_without_findings_and_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    page = check_elements(tmp_path)
    assert "No findings." in page.text
    assert "broken.py:1" in page.text
    assert "1 file in" in page.text and "1 error" in page.text
    assert "rules" not in page.ids


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        ("a\nb\nc\n", [(2, 3, "B")], [("same", 1, 1), ("changed", 2, 2), ("same", 3, 3)]),
        ("a\nb\n", [(0, 0, "new\n")], [("added", None, 1), ("same", 1, 2), ("same", 2, 3)]),
        ("a\nb\n", [(2, 4, "")], [("same", 1, 1), ("removed", 2, None)]),
        ("é = 1\nx", [(7, 8, "é")], [("same", 1, 1), ("changed", 2, 2)]),
        ("", [(0, 0, "x = 1\n")], [("added", None, 1)]),
        ("a\r\nb\r\n", [(3, 4, "c")], [("same", 1, 1), ("changed", 2, 2)]),
    ],
)
def test_rows_of_a_diff(
    text: str,
    edits: list[tuple[int, int, str]],
    expected: list[tuple[str, int | None, int | None]],
) -> None:
    data = [
        {"start": {"byte": start}, "end": {"byte": end}, "text": new} for start, end, new in edits
    ]
    (rows,) = hunks(text.encode(), data)
    shown = [(row.kind, row.old and row.old.number, row.new and row.new.number) for row in rows]
    assert shown == expected


def test_distant_edits_are_separate_and_count_lines_on() -> None:
    lines = [f"line {number}\n" for number in range(1, 21)]
    text = "".join(lines).encode()
    end = len(text) - len(lines[-1])
    edits = [
        {"start": {"byte": 0}, "end": {"byte": 0}, "text": "first\nsecond\n"},
        {"start": {"byte": end}, "end": {"byte": end + 4}, "text": "row"},
    ]
    first, second = hunks(text, edits)
    assert [row.kind for row in first][:2] == ["added", "added"]
    changed = second[-1]
    assert changed.old is not None
    assert changed.new is not None
    assert (changed.old.number, changed.new.number) == (20, 22)
    assert changed.old.parts == (("line", True), (" 20", False))
    assert changed.new.parts == (("row", True), (" 20", False))


def test_the_page_of_a_verification_shows_evidence_and_refutation() -> None:
    evidence = {
        "replays": 1,
        "wholes": 2,
        "seconds": 1.5,
        "dtypes": ["float32"],
        "shapes": ["[[1, 4], []]"],
        "domain": {"sizes": ["3 -> 17 in every dimension of that size"]},
        "mutants": {"killed": 3, "of": 4, "survived": ["line 3"]},
        "reproducer": "repro.py",
    }
    verdict = {
        "file": "model.py",
        "class": "Block",
        "lines": [3],
        "status": "refuted",
        "reason": "outputs differ <here>",
        "evidence": evidence,
    }
    versions = {"model.py": ("é = 1\nb\nc\nd\ne\nf\n".encode(), "é = 1\nb\nc\nd\ne\ng\n".encode())}
    page = Elements(verify_page("model.py", [verdict], versions))
    assert "Change 1 of 1 in model.py" in page.text
    assert "é = 1" not in page.text
    for text in (
        "0 of 1 changed definition proved",
        "outputs differ <here>",
        "1 recorded call, 2 runs of whole models",
        "1.5 s for runs of both versions",
        "1 x 4 and a number",
        "3 -> 17",
        "3 of 4 mutants",
        "python repro.py",
    ):
        assert text in page.text


def test_the_plot_of_a_benchmark_has_a_bar_for_each_variant() -> None:
    def row(name: str, low: float, high: float) -> dict[str, object]:
        speed = {"low": low, "median": (low + high) / 2, "high": high}
        seconds = {"low": 0.1, "median": 0.1, "high": 0.1}
        return {
            "mode": "training",
            "name": name,
            "against": "original",
            "rules": [name],
            "pair": {"old": seconds, "new": seconds, "speed": speed},
            "bytes": 2**20,
            "bytes_against": 2**21,
            "differs": "",
            "is_complete": True,
        }

    result = {
        "target": "t.py:f",
        "model": "M",
        "device": "cpu",
        "machine": "m",
        "threads": 1,
        "torch": "2",
        "clock": "c",
        "rounds": 5,
        "level": 0.95,
        "notes": (),
        "interrupted": "",
        "left": ("a place",),
        "chosen": None,
        "rows": [row("a/fast", 1.2, 900.0), row("a/slow", 0.001, 0.5), row("a/same", 0.9, 1.1)],
    }
    page = bench_page(result)
    elements = Elements(page)
    assert elements.tags["circle"] == 3
    for verdict in ("faster", "slower", "none"):
        assert f'class="bar {verdict}"' in page
    places = [float(x) for x in re.findall(r'x[12]="([-\d.]+)"', page)]
    assert min(places) >= 0
    assert max(places) <= 910
    assert "900.00)" in elements.text


def test_the_page_of_a_split_shows_regions_decisions_and_loops() -> None:
    x = {"name": "x", "type": "float32", "shape": [None, 4]}
    region = {
        "number": 0,
        "place": "/folder/net.py:7",
        "lines": ("/folder/net.py:7,9-10",),
        "operations": 3,
        "inputs": [x],
        "outputs": [x],
        "limits": ["x.shape[0] > 2"],
        "island": "",
        "seconds": (7e-6, 18e-6),
    }
    island = {**region, "number": 1, "island": "no operator", "seconds": None}
    inner = [{"kind": "region", "number": 1}]
    outline = [
        {"kind": "region", "number": 0},
        {
            "kind": "decision",
            "place": "/folder/net.py:9",
            "sides": [
                {
                    "condition": "x < 1",
                    "number": 0,
                    "steps": [{"kind": "host", "text": "return x"}],
                },
                {"condition": "x >= 1", "number": 1, "steps": inner},
            ],
        },
        {"kind": "loop", "header": "for i in range(3)", "steps": inner},
    ]
    report = {
        "subnetworks": 2,
        "models": 1,
        "islands": ("no operator",),
        "sides": 2,
        "sides_run": 1,
        "sides_taken": (0,),
        "unseen": (),
        "inputs_checked": 200,
        "at_threshold": (),
        "rounding": (),
        "not_left": (),
        "listed_sizes": (),
        "seconds": 1.5,
        "regions": (region, island),
        "times": (2e-4, 4e-4),
        "compilers": ({"compiler": "onnxruntime", "seconds": 2e-4, "reason": ""},),
        "outline": outline,
    }
    text = Elements(split_page("net.py:build", "out", "onnxruntime", ["/folder"], report)).text
    for part in (
        "net.py:7,9-10",
        "a call takes 200 us, beside PyTorch's 400 us (2.00 times the speed)",
        "compiler onnxruntime: 200 us a call",
        "run by onnxruntime, 7 µs (torch 18 µs)",
        "x: float32 (any, 4)",
        "x.shape[0] > 2",
        "torch (no operator)",
        "for i in range(3)",
        "return x",
    ):
        assert part in text
    assert text.count("never taken") == 1
    assert "/folder" not in text
