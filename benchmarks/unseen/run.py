"""How many known places in public repositories the rules find, and how many they can rewrite.

    python benchmarks/unseen/run.py --repositories DIR
    python benchmarks/unseen/run.py --repositories DIR --places FILE --misses
    # hours: also rewrite the files of fixable places, and prove what is rewritten
    python benchmarks/unseen/run.py --repositories DIR --prove [--only REGEX]

DIR holds a checkout of each repository as OWNER+NAME; what is missing is named with the commands
that get it. `places.json` holds facts only: repository, commit, file, lines and kind of each
place, written down by reading, before the rules ran there, and for some a doubt whether a rewrite
should be expected; these are counted in a table of their own. A place counts as found where a
finding of a rule for its kind touches a line near it, and as fixable where such a finding can be
rewritten. With `--prove` each file with fixable places is rewritten by the default rules, as
`regraft check --fix` does without a driver, and a place counts as proved where its class or
function is; verdicts are kept under `.cache/unseen/` by the texts of the file and of the verifier.
Exits with 1 where checkouts are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import regraft

PLACES = Path(__file__).with_name("places.json")
PACKS = "adopter,torch,liger"
DEFAULT_PACKS = PACKS
VERDICTS = ("unproven", "refuted", "not verified")
STORE = Path(".cache", "unseen", "verdicts.json")
VERDICT = re.compile(r"^\S+ (\S+): (proved|unproven|refuted)\b(.*)$", re.MULTILINE)
SECONDS = 900  # for rewriting and proving one file, unless `--seconds` says otherwise
NEAR = 12  # lines between a place, whose line is noted by hand, and a finding
# what the names of the rules for a kind of places fit
RULES_BY_KIND = {
    "add-rmsnorm": "rms-norm",
    "attention": "attention",
    "channels-first-ln": "channels-first",
    "conv-bn": "batchnorm",
    "cross-entropy": "cross-entropy|linear-loss",
    "dropout-residual-layernorm": "layernorm|layer-norm",
    "geglu": "gated|geglu|biased-gelu",
    "gelu": "gelu",
    "groupnorm": "group-norm",
    "layernorm": "layer-norm",
    "layernorm-functional": "layer-norm",
    "layernorm-std": "layer-norm|standardize|variance",
    "linear-gelu": "gelu",
    "lm-head+ce": "linear-cross-entropy|linear-loss|cross-entropy",
    "qkv": "qkv",
    "quick-gelu": "quick-gelu",
    "rmsnorm": "rms-norm",
    "rmsnorm-l2": "rms-norm|length-norm",
    "rotary": "rotary",
    "rotary-interleaved": "rotary",
    "silu": "silu|gated|group-norm",
    "softmax": "softmax|attention",
    "swiglu": "gated|silu",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a repository that the rules are meant for.

    line, end: the 1-based lines of the first and the last operation, 0 where the last is not noted.
    defined: the line of the first layer in the constructor where the call is that of a container,
    else 0. doubt: why no rewrite may be expected, "" where one is.
    """

    repo: str
    commit: str
    file: str
    line: int
    kind: str
    end: int = 0
    defined: int = 0
    doubt: str = ""

    @property
    def folder(self) -> str:
        """Return the name of the repository's checkout."""
        return self.repo.replace("/", "+")


def main() -> int:
    """Print a table by kind and one by repository; return the exit status."""
    options = parse_arguments()
    places = read_places(options.places)
    present = [place for place in places if options.repositories.joinpath(place.folder).is_dir()]
    for line in missing_checkouts(places, options.repositories):
        print(line)
    findings = {
        folder: findings_below(options.repositories / folder)
        for folder in dict.fromkeys(place.folder for place in present)
    }
    outcomes = {place: outcome_at(place, findings[place.folder]) for place in present}
    if options.prove:
        prove_fixable(outcomes, findings, options)
    for title, is_doubtful in (("certain places", False), ("doubtful places", True)):
        chosen = {place: outcomes[place] for place in present if bool(place.doubt) == is_doubtful}
        for key in ("kind", "repo") if chosen else ():
            print(f"\n{title}")
            print("\n".join(table(chosen, key, options.prove)))
    if options.misses:
        for place, outcome in outcomes.items():
            if outcome != ("proved" if options.prove else "fixable"):
                doubt = f" (doubtful: {place.doubt})" if place.doubt else ""
                print(f"{place.repo} {place.file}:{place.line} {place.kind}: {outcome}{doubt}")
    return int(len(present) < len(places))


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repositories", type=Path, required=True, metavar="DIR")
    parser.add_argument("--places", type=Path, default=PLACES, metavar="FILE")
    parser.add_argument("--misses", action="store_true", help="list what falls short")
    parser.add_argument("--prove", action="store_true", help="rewrite and prove fixable places")
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has the repositories' packages (default: this one)",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="prove only these files")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="N",
        help=f"on the clock, for rewriting and proving a file (default: {SECONDS})",
    )
    return parser.parse_args()


def read_places(path: Path) -> list[Place]:
    """Return the places of a JSON file, without its further fields."""
    entries = json.loads(path.read_text())
    names = [field.name for field in fields(Place)]
    return [Place(**{name: entry[name] for name in names if name in entry}) for entry in entries]


class Checkout(Protocol):
    """Something in a repository at a commit, of which `folder` is the name of the checkout."""

    @property
    def repo(self) -> str: ...
    @property
    def commit(self) -> str: ...
    @property
    def folder(self) -> str: ...


def missing_checkouts(places: Sequence[Checkout], root: Path) -> Iterator[str]:
    """Yield the commands that check out each missing repository at its commit."""
    for place in {place.repo: place for place in places}.values():
        target = root / place.folder
        if not target.is_dir():
            yield (
                f"missing: git clone https://github.com/{place.repo} {target}"
                f" && git -C {target} checkout {place.commit}"
            )


def prove_fixable(
    outcomes: dict[Place, str],
    findings: Mapping[str, Sequence[Mapping[str, Any]]],
    options: argparse.Namespace,
) -> None:
    """Replace the outcomes "fixable" of places in files that `--only` fits: "proved", or the
    verdict on their class or function."""
    verdicts_by_file: dict[str, dict[str, str]] = {}
    for place in [place for place, outcome in outcomes.items() if outcome == "fixable"]:
        file = f"{place.folder}/{place.file}"
        names = [
            str(finding["class"] or finding["function"])
            for finding in findings[place.folder]
            if is_near(place, finding)
            and finding["status"] == "fixable"
            and finding["rule"].split("/")[0] in DEFAULT_PACKS.split(",")
        ]
        if not names or not re.search(options.only, file):
            continue
        if file not in verdicts_by_file:
            verdicts_by_file[file] = verdicts_on(place, options)
            print(f"{file}: {verdicts_by_file[file]}", file=sys.stderr, flush=True)
        verdicts = [verdicts_by_file[file].get(name, "not verified") for name in names]
        outcomes[place] = "proved" if "proved" in verdicts else verdicts[0]


def verdicts_on(place: Place, options: argparse.Namespace) -> dict[str, str]:
    """Return the verdict on each class and function of a place's file that the default rules
    rewrite, "proved" or the verdict with its reason; {}, which is not stored, where that takes
    longer than `--seconds`."""
    path = options.repositories / place.folder / place.file
    sources = sorted(Path(regraft.__file__).parent.rglob("*.py"))
    key = hashlib.sha256(b"".join(file.read_bytes() for file in (path, *sources))).hexdigest()
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    if key not in stored:
        stored[key] = rewrite_and_prove(path, options.python, options.seconds)
        if not stored[key]:
            return {}
        STORE.parent.mkdir(parents=True, exist_ok=True)
        STORE.write_text(json.dumps(stored, indent=1))
    verdicts: dict[str, str] = stored[key]
    return verdicts


def rewrite_and_prove(path: Path, python: str, seconds: float) -> dict[str, str]:
    """Return the verdicts that `regraft check --fix` prints for a file, whose copy it rewrites."""
    command = [sys.executable, "-m", "regraft", "check", "--no-lock", "--no-cache", "--fix"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            process = subprocess.run(
                [
                    *command,
                    *("--select", DEFAULT_PACKS, "--python", python, "--out", folder),
                    str(path),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return {}
    matches = VERDICT.findall(process.stdout)
    return {
        name: verdict if verdict == "proved" else f"{verdict}{reason}"
        for name, verdict, reason in matches
    }


def findings_below(folder: Path) -> list[Mapping[str, Any]]:
    """Return the findings of all packs below a folder, as the JSON output holds them."""
    command = [sys.executable, "-m", "regraft", "check", "--no-lock", "--select", PACKS]
    process = subprocess.run(
        [*command, "--output-format", "json", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    findings: list[Mapping[str, Any]] = json.loads(process.stdout)["findings"]
    return findings


def outcome_at(place: Place, findings: Sequence[Mapping[str, Any]]) -> str:
    """Return "fixable", or why a place is not: "not found" or the reason of its finding."""
    near = [finding for finding in findings if is_near(place, finding)]
    if any(finding["status"] == "fixable" for finding in near):
        return "fixable"
    return str(near[0]["reason"]) if near else "not found"


def is_near(place: Place, finding: Mapping[str, Any]) -> bool:
    """Return whether a finding of a rule for the kind of a place is at most `NEAR` lines from
    it."""
    lines = [finding["start"]["line"], finding["end"]["line"], *finding["lines"]]
    own_lines = [line for line in (place.line, place.end, place.defined) if line]
    is_of_file = Path(finding["file"]).as_posix().endswith(f"{place.folder}/{place.file}")
    fits_kind = re.search(RULES_BY_KIND[place.kind], finding["rule"]) is not None
    return (is_of_file and fits_kind) and any(
        abs(line - own_line) <= NEAR for line in lines for own_line in own_lines
    )


def table(outcomes: Mapping[Place, str], key: str, with_proofs: bool) -> Iterator[str]:
    """Yield the lines of a table by kind or repository: places, found and fixable ones, and with
    proofs the proved ones."""
    rows: dict[str, Counter[str]] = {}
    for place, outcome in outcomes.items():
        for name in (getattr(place, key), "total"):
            counts = rows.setdefault(name, Counter())
            counts["places"] += 1
            counts["found"] += outcome != "not found"
            counts["fixable"] += outcome in ("fixable", "proved") or outcome.startswith(VERDICTS)
            counts["proved"] += outcome == "proved"
    columns = ("places", "found", "fixable", *(["proved"] if with_proofs else []))
    yield key.ljust(36) + "".join(column.rjust(9) for column in columns)
    for name in sorted(rows, key=lambda name: (name == "total", name)):
        yield name.ljust(36) + "".join(str(rows[name][column]).rjust(9) for column in columns)


if __name__ == "__main__":
    sys.exit(main())
