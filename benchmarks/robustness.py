"""Mutate real Python files, rules, configurations and cache entries, and run Regraft on them.

    python benchmarks/robustness.py                                  # 2,000 files, 500 others
    python benchmarks/robustness.py --files 20000 --others 2000 --jobs 2
    python benchmarks/robustness.py --sources DIR                    # mutate the files below DIR

A mutated file is scanned with every rule of every pack and rewritten without proof. It is wrong
where anything but an error with its place comes out: an exception, a rewritten text that does not
parse, or more than 5 s of processor time. A mutated rule or configuration may be refused with its
place; a mutated cache entry must not change the report. Wrong ones are written below
`.cache/robustness/`, named by the number that the mutation is drawn from. Prints a line for each
kind of mutation, and exits with 1 where something was wrong.

The sources are by default the files of the installed packages that mention torch, in the order of
a hash of their paths.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import itertools
import os
import random
import re
import resource
import signal
import sys
import sysconfig
import tempfile
import time
import tokenize
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from regraft.configuration import ConfigurationError, read
from regraft.rules import BUILT_IN, load_rules
from regraft.rules.loading import rule_paths
from regraft.scanning import CompiledRule, RuleDefect, check_source, compile_rules, rewrite_file
from regraft.scanning.parallel import Task, scan_files
from regraft.source.text import SourceError, parse

SECONDS = 5.0
LARGEST = 60_000  # bytes of a source file
FAILURES = Path(".cache/robustness")
Text = Callable[[str, random.Random], str]
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "==", "!=", "<", ">=", "and", "or")
ODD_TOKENS = (
    "*", "**", ":=", "await", "...", "yield", "not", "0x", "'", "\"", "\\", "\xe9", "None", "del",
    "@", "->", "async", "{**a}", "[*b]", "f'{x!r}'", "1_0j", "type", "match", "case", "global",
    "nonlocal", "x.__class__", "\x0c", "\u202e", "\t", "\r", "\"\"\"", "type X = int", "match x:",
    "case _:", "lambda: 0",
)  # fmt: skip  # a table of short texts


def tokens_of(text: str) -> list[str]:
    """Return a text cut at its tokens, or at words where it has none."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return re.findall(r"\w+|\s+|.", text)
    lines = text.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    last = len(offsets) - 1
    cuts = sorted(
        {0, len(text)}
        | {
            min(offsets[min(line - 1, last)] + column, len(text))
            for token in tokens
            for line, column in (token.start, token.end)
        }
    )
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def change_tokens(text: str, draw: random.Random) -> str:
    """Delete, repeat, exchange or replace a few tokens."""
    tokens = tokens_of(text)
    names = [token for token in tokens if token.isidentifier()] or ["x"]
    for _ in range(draw.randint(1, 4)):
        if len(tokens) < 2:
            break
        place, other = draw.randrange(len(tokens)), draw.randrange(len(tokens))
        change = draw.randrange(6)
        if change == 0:
            del tokens[place]
        elif change == 1:
            tokens.insert(place, tokens[place])
        elif change == 2:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif change == 3:
            tokens[place] = draw.choice(names)
        elif change == 4:
            tokens[place] = draw.choice(OPERATORS)
        else:
            tokens[place] = draw.choice(ODD_TOKENS)
    return "".join(tokens)


def change_lines(text: str, draw: random.Random) -> str:
    """Delete, repeat, move, indent or cut lines."""
    lines = text.splitlines(keepends=True)
    for _ in range(draw.randint(1, 4)):
        if len(lines) < 2:
            break
        place, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        change = draw.randrange(5)
        if change == 0:
            del lines[place]
        elif change == 1:
            lines.insert(other, lines[place])
        elif change == 2:
            lines[place], lines[other] = lines[other], lines[place]
        elif change == 3:
            lines[place] = " " * draw.randint(0, 12) + lines[place].lstrip(" ")
        else:
            lines[place] = lines[place][: draw.randrange(len(lines[place]) + 1)]
    return "".join(lines)


def change_bytes(text: str, draw: random.Random) -> str:
    """Insert odd characters, change line ends, or cut the text."""
    place = draw.randrange(len(text) + 1)
    change = draw.randrange(6)
    if change == 0:
        return text[:place]
    if change == 1:
        return text.replace("\n", draw.choice(("\r\n", "\r", "\n\n", "\x0c\n")))
    if change == 2:
        return "\ufeff" * draw.randint(1, 2) + text
    if change == 3:
        return (
            f"# -*- coding: {draw.choice(('latin-1', 'utf-16', 'nonsense', 'utf-8'))} -*-\n{text}"
        )
    odd = draw.choice(("\0", "\u2028", "\ud800", "\x1a", "🙂", "\x85", "ﬁ", "\u00a0"))
    return text[:place] + odd + text[place:]


class Exchange(ast.NodeTransformer):
    """Puts some expressions and statements of a file into the places of others."""

    def __init__(self, tree: ast.Module, draw: random.Random) -> None:
        self.draw = draw
        nodes = list(ast.walk(tree))
        self.loads = [
            node
            for node in nodes
            if isinstance(node, ast.expr)
            and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
            and not isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.Starred)
        ]
        self.statements = [node for node in nodes if isinstance(node, ast.stmt)]
        self.rate = 3 / max(1, len(nodes))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Return the node with its parts visited, or another one of its kind in its place."""
        if self.draw.random() < self.rate:
            if isinstance(node, ast.stmt):
                return self.draw.choice(self.statements)
            if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", None), ast.Load):
                return self.draw.choice(self.loads)
        return super().generic_visit(node)


def change_tree(text: str, draw: random.Random) -> str:
    """Exchange statements and expressions of the syntax tree, so that most results parse."""
    try:
        tree = ast.parse(text)
        return ast.unparse(ast.fix_missing_locations(Exchange(tree, draw).visit(tree)))
    except (SyntaxError, ValueError, RecursionError, AttributeError, TypeError):
        return text  # a file that is wrong already, or a tree that cannot be printed


def nest(text: str, draw: random.Random) -> str:
    """Put a deep or long construction into the text, at the end of a line."""
    depth = draw.choice((3, 30, 90, 300, 3000))
    expression = draw.choice(
        (
            "(" * depth + "x" + ")" * depth,
            "+".join(["x"] * depth),
            "x" + ".softmax(-1)" * depth,
            "[" * depth + "]" * depth,
            "f(" * depth + ")" * depth,
            "not " * depth + "x",
            "x if x else " * depth + "x",
            "lambda: " * depth + "x",
        )
    )
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if re.match(r" +(\w+ = |return )", line)]
    if not places:
        return f"{text}\nx = {expression}\n"
    place = draw.choice(places)
    head = re.match(r" +(\w+ = |return )", lines[place])
    assert head is not None
    lines[place] = f"{head[0]}{expression}\n"
    return "".join(lines)


MUTATIONS: dict[str, Text] = {
    "tokens": change_tokens,
    "lines": change_lines,
    "characters": change_bytes,
    "syntax tree": change_tree,
    "deep nesting": nest,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one mutated text: "parsed", "refused" or "wrong".

    rewritten  whether rules rewrote something in it
    reason     what is wrong; "" for nothing
    """

    kind: str
    status: str
    seconds: float
    rewritten: bool = False
    reason: str = ""


class TooLong(BaseException):
    """The end of a run that took more than `SECONDS`."""


def _stop(*_: object) -> None:
    raise TooLong


@cache
def all_rules() -> tuple[CompiledRule, ...]:
    """Return the rules of all packs."""
    rules, problems = load_rules(["*/*"])
    compiled, more_problems = compile_rules(rules)
    assert not problems and not more_problems
    return compiled


def guarded(kind: str, name: str, text: str, work: Callable[[str], tuple[str, bool]]) -> Outcome:
    """Return the outcome of `work` on a text, in limited time; write the text down where it is
    wrong."""
    started = time.process_time()
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    reason = ""
    status, rewritten = "wrong", False
    try:
        status, rewritten = work(text)
    except TooLong:
        reason = f"takes over {SECONDS:.0f} s"
    except RuleDefect as defect:
        reason = str(defect.error)
    except Exception:  # noqa: BLE001  this is what is looked for
        reason = traceback.format_exc(limit=-3)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if status == "wrong" and not reason:
        reason = "another result than expected"
    if reason:
        FAILURES.mkdir(parents=True, exist_ok=True)
        (FAILURES / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        reason = f"{FAILURES / name}: {reason}"
    return Outcome(kind, status, time.process_time() - started, rewritten, reason)


def check_text(text: str) -> tuple[str, bool]:
    """Scan and rewrite a text with all rules; return whether it parses, and is rewritten."""
    source = parse("mutated.py", text.encode("utf-8", "surrogatepass"))
    if isinstance(source, SourceError):
        return "refused", False
    report = check_source(source, all_rules())
    if report.errors:
        return "refused", False
    rewritten, applied = rewrite_file(report, all_rules())
    ast.parse(rewritten)
    return "parsed", bool(applied)


def run_file(number: int, path: str) -> Outcome:
    """Return the outcome of the mutation of a file that a number stands for."""
    draw = random.Random(number)
    kind = draw.choice(list(MUTATIONS))
    text = MUTATIONS[kind](Path(path).read_text("utf-8", "replace"), draw)
    return guarded(kind, f"file-{number}.py", text, check_text)


def check_rule(path: Path, text: str) -> tuple[str, bool]:
    """Load a mutated version of a rule with its page, and match it in a file where it loads."""
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder, path.parent.name)
        pack.mkdir()
        (pack / path.name).write_bytes(text.encode("utf-8", "surrogatepass"))
        page = path.with_suffix(".md").name
        (pack / page).write_bytes(path.with_suffix(".md").read_bytes())
        rules, problems = load_rules([f"{pack.name}/*"], (), (Path(folder),))
        compiled, more_problems = compile_rules(rules)
        if not all(str(problem.error) for problem in (*problems, *more_problems)):
            return "wrong", False
        source = parse("file.py", Path(__file__).read_bytes())
        assert not isinstance(source, SourceError)
        check_source(source, compiled)
    return ("refused" if problems or more_problems else "parsed"), False


def check_configuration(text: str) -> tuple[str, bool]:
    """Read a mutated configuration file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "regraft.toml")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            read(path)
        except ConfigurationError as error:
            return ("refused" if all(map(str, error.errors)) else "wrong"), False
    return "parsed", False


def check_cache_entry(seed: str) -> tuple[str, bool]:
    """Scan a file again after its cache entry was damaged: the report has to be the same."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.py")
        path.write_text("import torch\ndef f(x):\n    return torch.softmax(x, -1)\n")
        root = Path(folder, "cache")
        task = Task(all_rules(), False, root)
        (expected,) = scan_files([path], task)
        for entry in [file for file in root.rglob("*") if file.is_file()]:
            entry.write_bytes(damaged(entry.read_bytes(), draw))
        (report,) = scan_files([path], task)
        before, after = (
            [finding.fingerprint for finding in side.findings] for side in (expected, report)
        )
    return ("parsed" if before == after and before else "wrong"), False


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return bytes cut, with some exchanged, or with others in front."""
    place = draw.randrange(len(data) + 1)
    change = draw.randrange(4)
    if change == 0:
        return data[:place]
    if change == 1:
        return draw.randbytes(8) + data
    if change == 2:
        return data[:place] + draw.randbytes(1) + data[place + 1 :]
    return b"{}" if draw.random() < 0.5 else b""


CONFIGURATION = """\
select = ["torch", "idioms/one-hot-loss"]
ignore = ["torch/gelu"]
exclude = ["build/", "*.gen.py"]
target = "cpu"
keep = ["script"]
time-limit = 120.0
jobs = 2
unsafe = false
[per-file-ignores]
"tests/*" = ["torch"]
[driver]
"src/model.py" = "drivers.py:model"
"""


def run_other(number: int) -> Outcome:
    """Return the outcome of the mutated rule, configuration or cache entry of a number."""
    draw = random.Random(-1 - number)
    change = draw.choice((change_tokens, change_lines, change_bytes))
    kind = ("rule", "configuration", "cache entry")[number % 3]
    if kind == "rule":
        path = draw.choice(sorted(rule_paths((BUILT_IN,)).values()))
        text = change(path.read_text("utf-8"), draw)
        return guarded(kind, f"rule-{number}.rule", text, partial(check_rule, path))
    if kind == "configuration":
        return guarded(
            kind, f"configuration-{number}.toml", change(CONFIGURATION, draw), check_configuration
        )
    return guarded(kind, f"entry-{number}.txt", str(number), check_cache_entry)


def sources(folder: Path) -> list[str]:
    """Return the Python files below a folder that mention torch, in the order of a hash of their
    paths."""
    paths = [
        path
        for path in folder.rglob("*.py")
        if path.stat().st_size <= LARGEST and b"torch" in path.read_bytes()
    ]
    key = {path: hashlib.sha256(str(path.relative_to(folder)).encode()).digest() for path in paths}
    return [str(path) for path in sorted(paths, key=key.__getitem__)]


def outcomes(
    numbers: Sequence[int], paths: Sequence[str], others: int, jobs: int
) -> Iterator[Outcome]:
    """Yield the outcomes of all mutations, from several processes."""
    with ProcessPoolExecutor(jobs) as pool:
        files = [paths[number % len(paths)] for number in numbers]
        yield from pool.map(run_file, numbers, files, chunksize=20)
        yield from pool.map(run_other, range(others), chunksize=20)


def main() -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=2000, metavar="N")
    parser.add_argument("--others", type=int, default=500, metavar="N")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="number of the first mutation"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--sources", type=Path, default=Path(sysconfig.get_path("purelib")))
    options = parser.parse_args()
    paths = sources(options.sources)
    if not paths:
        parser.error(f"{options.sources} has no Python file that mentions torch")
    counts: dict[str, Counter[str]] = {}
    longest: dict[str, float] = {}
    reasons: list[str] = []
    numbers = range(options.seed, options.seed + options.files)
    for outcome in outcomes(numbers, paths, options.others, options.jobs):
        counter = counts.setdefault(outcome.kind, Counter())
        counter[outcome.status] += 1
        counter["rewritten"] += outcome.rewritten
        longest[outcome.kind] = max(longest.get(outcome.kind, 0.0), outcome.seconds)
        if outcome.reason:
            reasons.append(outcome.reason)
            print(outcome.reason, file=sys.stderr)
    print(f"{len(paths)} source files, Python {sys.version.split()[0]}, {os.uname().machine}")
    columns = ("parsed", "refused", "rewritten", "wrong")
    print(f"{'mutated':15}" + "".join(f"{name:>11}" for name in columns) + f"{'longest':>11}")
    for kind, counter in counts.items():
        row = "".join(f"{counter[name]:11}" for name in columns)
        print(f"{kind:15}{row}{longest[kind]:9.2f} s")
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_CHILDREN,)) / 1024
    print(f"largest process: {memory:.0f} MiB; wrong: {len(reasons)}")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
