"""The rules of the pack `liger` over a pinned package: families of models, and places that people
patch by hand.

    # findings and families of each rule
    python benchmarks/liger_coverage/run.py
    # places that Liger patches by name
    python benchmarks/liger_coverage/run.py --sites SITES.json --misses
    python benchmarks/liger_coverage/run.py --annotations ANNOTATIONS.json --misses

Fetches the pinned wheel the first time (its text only, under `.cache/`). A site list is a JSON list
of objects with `file`, `line`, `end`, `name` and `category`; an annotation list one of objects with
`file`, `def_line`, `target` and `kernel`. A place is found when one of a finding's lines lies
within it. A definition that maintainers missed has, but for names, the body of one that carries an
annotation, and carries none.
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "adopter199"))

from packages import Package, fetch

from regraft.rules import load_rules
from regraft.scanning import Finding, check_file, collected_between, compile_rules

RULES = {
    "rmsnorm": "rms-norm",
    "swiglu_mlp": "gated-activation",
    "geglu_mlp": "gated-activation",
    "rope": "rotary",
    "layernorm": "layer-norm",
    "cross_entropy": "cross-entropy",
    "moe_experts": "experts",
    "fused_linear_cross_entropy": "linear-loss",
    "RMSNorm": "rms-norm",
    "rotary_pos_emb": "rotary",
}
# Families of transformers 5.23.0 that Liger 0.8.5 patches, by the kernel; those that could take it,
# where counted.
LIGER = {
    "rms-norm": (39, 176),
    "gated-activation": (31, 157),
    "rotary": (25, 177),
    "layer-norm": (7, 316),
}
LIGER |= {"linear-loss": (41, 302), "experts": (9, 61)}


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a list, or one definition; `first` is 0 where the list gives no line."""

    kernel: str
    file: str
    first: int
    last: int
    name: str

    def holds(self, finding: Finding) -> bool:
        inside = not self.first or any(self.first <= line <= self.last for line in finding.lines)
        return inside and finding.rule.id == f"liger/{RULES.get(self.kernel)}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    package = fetch(options.package)
    started = time.process_time()
    found = findings(package)
    print("\n".join(table(found)))
    print()
    print(
        f"{options.package}, {len(package.files)} files, {time.process_time() - started:.1f} s of"
        " processor time"
    )
    print(
        f"Python {platform.python_version()}, regraft {importlib.metadata.version('regraft')},"
        f" {time.strftime('%F')}"
    )
    if options.sites:
        print("\nplaces that Liger patches by name")
        score(package, listed(options.sites, package), found, options.misses)
    if options.annotations:
        places = annotated(options.annotations, package)
        print("\ndefinitions that maintainers annotated")
        score(package, places, found, options.misses)
        print("\ndefinitions with the body of an annotated one, without an annotation")
        score(package, missed(places, package), found, options.misses)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="transformers==5.23.0", metavar="NAME==VERSION")
    parser.add_argument("--sites", type=Path, metavar="FILE", help="score against a list of places")
    parser.add_argument(
        "--annotations", type=Path, metavar="FILE", help="score against a list of annotations"
    )
    parser.add_argument(
        "--misses", action="store_true", help="print every place that was not found, and why"
    )
    return parser.parse_args(arguments)


def findings(package: Package) -> Mapping[str, tuple[Finding, ...]]:
    """What the pack finds in each file, by the file's name in the package."""
    rules, problems = load_rules(["liger"])
    compiled, more = compile_rules(rules)
    if problems or more:
        raise SystemExit(f"rules do not load: {problems + more}")
    reports = collected_between(check_file(path, compiled) for path in package.files)
    return {package.label(report.file): report.findings for report in reports}


def table(found: Mapping[str, tuple[Finding, ...]]) -> Iterator[str]:
    """One row a rule: findings, those that are rewritten, and the families that they are in."""
    yield (
        f"{'rule':24}{'found':>8}{'fixable':>9}{'families':>10}{'fixable in':>12}{'Liger':>7}{'possible':>10}"  # noqa: E501
    )
    rows: dict[str, list[tuple[str, Finding]]] = collections.defaultdict(list)
    for file, several in found.items():
        for one in several:
            rows[one.rule.id].append((Path(file).parent.name, one))
    for rule, several in sorted(rows.items()):
        fixable = [family for family, one in several if one.fixable]
        families = {family for family, _ in several}
        liger, possible = LIGER.get(rule.partition("/")[2], ("", ""))
        yield f"{rule:24}{len(several):8}{len(fixable):9}{len(families):10}{len(set(fixable)):12}{liger!s:>7}{possible!s:>10}"  # noqa: E501


def listed(path: Path, package: Package) -> list[Place]:
    """The places of a site list; one that names a line alone is the statement that starts there."""
    return [
        Place(
            row["category"],
            row["file"],
            row["line"] or 0,
            row["end"] or _end(package, row),
            row["name"],
        )
        for row in json.loads(path.read_text())
    ]


def _end(package: Package, row: Mapping[str, Any]) -> int:
    tree = ast.parse((package.directory / row["file"]).read_bytes())
    starting = [
        one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno == row["line"]
    ]
    return max((one.end_lineno or 0 for one in starting), default=row["line"] or 0)


def annotated(path: Path, package: Package) -> list[Place]:
    """The annotated definitions of modeling files, for kernels that the pack has."""
    places = []
    for row in json.loads(path.read_text()):
        if row["kernel"] in RULES and row["file_kind"] == "modeling":
            node = next(
                one for one in _definitions(package, row["file"]) if one.name == row["target"]
            )
            places.append(
                Place(row["kernel"], row["file"], node.lineno, node.end_lineno or 0, node.name)
            )
    return places


def missed(places: Sequence[Place], package: Package) -> list[Place]:
    """Definitions of all files that have the body of an annotated one, but for names, and no
    annotation."""
    bodies: dict[str, str] = {}
    for place in places:
        node = next(one for one in _definitions(package, place.file) if one.lineno == place.first)
        bodies[_body(node)] = place.kernel
    copies = []
    for path in package.files:
        for node in _definitions(package, package.label(path)):
            kernel = bodies.get(_body(node))
            if kernel is not None and not any(
                "kernel" in ast.unparse(one) for one in node.decorator_list
            ):
                copies.append(
                    Place(kernel, package.label(path), node.lineno, node.end_lineno or 0, node.name)
                )
    return copies


def _definitions(package: Package, file: str) -> list[ast.ClassDef | ast.FunctionDef]:
    tree = ast.parse((package.directory / file).read_bytes())
    return [one for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]


def _body(node: ast.ClassDef | ast.FunctionDef) -> str:
    """What a definition computes: its code without annotations, docstrings, and names of its own
    and its variables."""
    methods = [
        one
        for one in node.body
        if isinstance(one, ast.FunctionDef) and one.name not in ("__init__", "extra_repr")
    ]
    names: dict[str, str] = {}
    return "\n".join(
        _plain(one, names) for one in (methods if isinstance(node, ast.ClassDef) else [node])
    )


def _plain(function: ast.FunctionDef, names: dict[str, str]) -> str:
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, ast.FunctionDef)
    copy.name, copy.decorator_list, copy.returns = "f", [], None
    if isinstance(copy.body[0], ast.Expr) and isinstance(copy.body[0].value, ast.Constant):
        copy.body = copy.body[1:] or copy.body
    local = {one.arg for one in ast.walk(copy) if isinstance(one, ast.arg)}
    local |= {
        one.id
        for one in ast.walk(copy)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    for one in ast.walk(copy):
        if isinstance(one, ast.arg):
            one.annotation, one.arg = None, names.setdefault(one.arg, f"v{len(names)}")
        elif isinstance(one, ast.Name) and one.id in local:
            one.id = names.setdefault(one.id, f"v{len(names)}")
    return ast.unparse(copy)


def score(
    package: Package,
    places: Sequence[Place],
    found: Mapping[str, tuple[Finding, ...]],
    explain: bool,
) -> None:
    """Print how many places of each kernel are found, and those that are not."""
    rows: dict[str, list[Place]] = collections.defaultdict(list)
    for place in places:
        rows[place.kernel].append(place)
    for kernel, several in sorted(rows.items()):
        hits = {
            id(one): [each for each in found.get(one.file, ()) if one.holds(each)]
            for one in several
        }
        whole = [one for one in several if hits[id(one)]]
        fixable = [one for one in whole if any(each.fixable for each in hits[id(one)])]
        share = 100 * len(whole) / len(several)
        print(
            f"{kernel:28}{len(whole):4} of {len(several):4} found ({share:.1f}%), {len(fixable)}"
            " fixable"
        )
        for one in several if explain else ():
            if one not in fixable:
                print(f"    {one.file}:{one.first} {one.name}: {_why(package, one, hits[id(one)])}")


def _why(package: Package, place: Place, hits: Sequence[Finding]) -> str:
    """Why a place is withheld, or the nearest miss of its rule in it."""
    if hits:
        return f"withheld: {hits[0].reason}"
    if place.kernel not in RULES:
        return "the pack has no rule for it"
    compiled, _ = compile_rules(load_rules([f"liger/{RULES[place.kernel]}"])[0])
    misses = check_file(package.directory / place.file, compiled, explain=True).misses
    inside = [one.reason for one in misses if place.first <= one.line <= place.last]
    return "; ".join(dict.fromkeys(inside)) or "nothing like it there"


if __name__ == "__main__":
    sys.exit(main())
