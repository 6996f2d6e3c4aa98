"""The rules of the pack `hub` over a pinned package: definitions that maintainers annotated, and
those they missed.

    python benchmarks/hub_annotations/run.py --annotations ANNOTATIONS.json

The list is that of `benchmarks/liger_coverage/run.py`. Each annotated definition loses its
annotation, its callers theirs, and the rules are applied to the file: it is restored when it has
the same decorators again.
"""

from __future__ import annotations

import argparse
import ast
import collections
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "liger_coverage"))

from run import Package, Place, annotated, fetch, missed

from regraft.rules import load_rules
from regraft.scanning import CompiledRule, check_file, check_source, compile_rules, rewrite_file
from regraft.source.text import SourceError, SourceFile, parse

KERNELS = ("RMSNorm", "rotary_pos_emb")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", default="transformers==5.23.0", metavar="NAME==VERSION")
    parser.add_argument("--annotations", type=Path, metavar="FILE", required=True)
    options = parser.parse_args(arguments)
    package = fetch(options.package)
    rules, problems = load_rules(["hub"])
    compiled, more = compile_rules(rules)
    if problems or more:
        raise SystemExit(f"rules do not load: {problems + more}")
    places = [one for one in annotated(options.annotations, package) if one.kernel in KERNELS]
    print("\n".join(stripped(package, places, compiled)))
    print("\n".join(unannotated(package, missed(places, package), compiled)))
    return 0


def stripped(
    package: Package, places: Sequence[Place], rules: Sequence[CompiledRule]
) -> Iterator[str]:
    """How many annotations come back after they were taken away."""
    total: collections.Counter[str] = collections.Counter()
    back: collections.Counter[str] = collections.Counter()
    files: dict[str, list[Place]] = collections.defaultdict(list)
    for place in places:
        files[place.file].append(place)
    same = 0
    lost = []
    for file, inside in sorted(files.items()):
        path = package.directory / file
        before = path.read_bytes()
        source = parse(str(path), without(before, {one.name for one in inside}))
        assert isinstance(source, SourceFile), source
        after, _ = rewrite_file(check_source(source, rules), rules)
        same += after == before
        wanted, found = decorators(before), decorators(after)
        for one in inside:
            total[one.kernel] += 1
            back[one.kernel] += wanted[one.name] == found[one.name]
            if wanted[one.name] != found[one.name]:
                lost.append(f"    {file}:{one.first} {one.name}")
    yield "annotations that come back after they were taken away"
    yield from (f"{kernel:20}{back[kernel]:4} of {total[kernel]:3}" for kernel in KERNELS)
    yield f"{'files, byte for byte':20}{same:4} of {len(files):3}"
    yield from lost


def without(text: bytes, names: set[str]) -> bytes:
    """A file without the Hub's decorators of some definitions, and those of classes that are given
    one of them."""
    lines: list[bytes] = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        for one in node.decorator_list if isinstance(node, ast.ClassDef | ast.FunctionDef) else ():
            called = ast.unparse(one)
            marked = called.startswith("use_kernel_forward_from_hub") and node.name in names  # type: ignore[union-attr]
            if marked or any(called == f"use_kernelized_func({name})" for name in names):
                lines[one.lineno - 1 : one.end_lineno] = [b""] * (
                    (one.end_lineno or one.lineno) - one.lineno + 1
                )
    return b"".join(lines)


def decorators(text: bytes) -> Mapping[str, list[str]]:
    nodes = (one for one in ast.parse(text).body if isinstance(one, ast.ClassDef | ast.FunctionDef))
    return {one.name: [ast.unparse(each) for each in one.decorator_list] for one in nodes}


def unannotated(
    package: Package, places: Sequence[Place], rules: Sequence[CompiledRule]
) -> Iterator[str]:
    """Which definitions with the body of an annotated one get the annotation, and everything else
    that does."""
    known = {(one.file, one.name): one for one in places}
    found: dict[tuple[str, str], str] = {}
    for path in package.files:
        report = check_file(path, rules)
        assert not any(isinstance(one, SourceError) for one in report.errors), report.errors
        for one in report.findings:
            found[package.label(path), one.cls or one.function] = (
                f"withheld: {one.reason}" if one.reason else "annotated"
            )
    yield "\ndefinitions with the text of an annotated one, but for names, without an annotation"
    for kernel in KERNELS:
        several = [key for key, one in known.items() if one.kernel == kernel]
        yield (
            f"{kernel:20}{sum(found.get(key) == 'annotated' for key in several):4} of"
            f" {len(several):3}"
        )
        yield from (
            f"    {file} {name}: {found.get((file, name), 'left alone')}" for file, name in several
        )
    yield "others"
    yield from (
        f"    {file} {name}: {what}"
        for (file, name), what in found.items()
        if (file, name) not in known
    )


if __name__ == "__main__":
    sys.exit(main())
