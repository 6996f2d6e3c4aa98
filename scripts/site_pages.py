"""Make the pages of the site that are not files of docs/, and adapt those that are.

These are hooks of mkdocs. A page is made of each rule, each JSON schema, the list of decisions, the
example, README.md, CHANGELOG.md and CONTRIBUTING.md. Links in docs/ work on GitHub; a link that
leaves docs/ leads to the page that is made of its target here, or to a copy of the file below
`files/`. A link to a file that does not exist is a warning, which `strict` makes an error.
"""

from __future__ import annotations

import html
import json
import logging
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regraft.rules import BUILT_IN, Rule, load_rule
from regraft.rules.package_requirements import requirement
from regraft.rules.worth import TARGETS, Worth, worth_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PACKS = BUILT_IN.relative_to(ROOT).as_posix()
DOCS = "../../../../../docs"  # from the folder of a rule
SCHEMAS = "src/regraft/report/schemas"
LOG = logging.getLogger("mkdocs.hooks.site_pages")
# a fenced block, which stays as it is, or the target of a link
FENCE_OR_LINK = re.compile(r"^(`{3,}).*?^\1$|(?<=\]\()[^)\s]+(?=\))", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```python (before|after|unchanged)(?: reason=\"(.*)\")?$", re.MULTILINE)
CODE_IN_TABLE = re.compile(r"`[^`]+`")


def source_pages() -> dict[str, str]:
    """Return the page of each file of the repository, outside of docs/, that has one."""
    pages = {
        "README.md": "index.md",
        "CHANGELOG.md": "changelog.md",
        "CONTRIBUTING.md": "contributing.md",
        "docs/decisions": "decisions/index.md",
        "examples/own-repository/README.md": "example.md",
        "examples/own-repository": "example.md",
    }
    for path in sorted(BUILT_IN.glob("*/*.rule")):
        page = f"rule/{path.parent.name}/{path.stem}.md"
        pages[f"{PACKS}/{path.parent.name}/{path.stem}.md"] = page
        pages[f"{PACKS}/{path.parent.name}/{path.name}"] = page
    for path in sorted((ROOT / SCHEMAS).glob("*.schema.json")):
        pages[f"{SCHEMAS}/{path.name}"] = f"schema/{path.name.removesuffix('.schema.json')}.md"
    return pages


PAGES = source_pages()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add a page for each rule, and for each decision, to the navigation."""
    packs: dict[str, list[str]] = {}
    for page in dict.fromkeys(PAGES.values()):
        if page.startswith("rule/"):
            packs.setdefault(page.split("/")[1], []).append(page)
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    entries = [f"decisions/{path.name}" for path in decisions]
    for section in config.nav:
        if "Rules" in section:
            section["Rules"] += [{pack: pages} for pack, pages in packs.items()]
        if "Project" in section:
            section["Project"] = [
                {"Decisions": [entry, *entries]} if entry == "decisions/index.md" else entry
                for entry in section["Project"]
            ]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and the files to which pages link."""
    for source, page in PAGES.items():
        if page not in files.src_uris:
            files.append(generated(config, page, page_text(source, page)))
    for file in list(files.documentation_pages()):
        for target in outside_targets(file.content_string, file.src_uri):
            copy = copy_of(target)
            if copy in files.src_uris or not (ROOT / target).exists():
                continue
            is_folder = (ROOT / target).is_dir()
            content = folder_page(target) if is_folder else (ROOT / target).read_bytes()
            files.append(generated(config, copy, content))
    return files


def generated(config: MkDocsConfig, uri: str, content: str | bytes) -> File:
    """Return a file of the site that is no file of docs/."""
    from mkdocs.structure.files import File, InclusionLevel

    level = InclusionLevel.NOT_IN_NAV if uri.startswith("files/") else InclusionLevel.UNDEFINED
    return File.generated(config, uri, content=content, inclusion=level)


def copy_of(target: str) -> str:
    """Return where a file or folder outside of docs/ is in the site, where it has no page."""
    return f"files/{target}/index.md" if (ROOT / target).is_dir() else f"files/{target}"


def folder_page(folder: str) -> str:
    """Return the page of a folder: the names of its files."""
    names = sorted(path.name for path in (ROOT / folder).iterdir())
    return "\n".join(
        (f"# {folder}\n", "A folder of the repository:\n", *(f"* `{name}`" for name in names))
    )


def outside_targets(text: str, uri: str) -> Iterator[str]:
    """Yield the files outside of docs/, relative to the repository, to which a page links."""
    for match in FENCE_OR_LINK.finditer(text):
        target = match.group().partition("#")[0]
        if match.group(1) is None and target and not is_address(target):
            path = posixpath.normpath(posixpath.join(source_folder(uri), target))
            if not path.startswith("docs/") and path not in PAGES:
                yield path


def source_folder(uri: str) -> str:
    """Return the folder, relative to the repository, from which the links of a page lead."""
    sources = [source for source, page in PAGES.items() if page == uri]
    return posixpath.dirname(sources[0] if sources else f"docs/{uri}")


def is_address(target: str) -> bool:
    """Return whether a link leads out of the repository."""
    return "://" in target or target.startswith("mailto:")


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Return the text of a page with links of the site, and with what GitHub reads otherwise."""
    markdown = FENCE_OR_LINK.sub(link_writer(page.file.src_uri), markdown)
    markdown = FENCE.sub(fence_with_title, markdown)
    return "\n".join(
        CODE_IN_TABLE.sub(lambda match: match.group().replace("\\|", "|"), line)
        if line.startswith("|")
        else line
        for line in markdown.split("\n")
    )


def link_writer(uri: str) -> Callable[[re.Match[str]], str]:
    """Return the function that turns a link of the page into one of the site."""
    here, folder = posixpath.dirname(uri), source_folder(uri)

    def link(match: re.Match[str]) -> str:
        target, mark, anchor = match.group().partition("#")
        if match.group(1) is not None or not target or is_address(target):
            return match.group()
        source = posixpath.normpath(posixpath.join(folder, target))
        if not (ROOT / source).exists():
            LOG.warning("%s: the link %s leads to no file", uri, target)
        in_docs = source.startswith("docs/")
        inside = source.removeprefix("docs/") if in_docs else copy_of(source)
        return posixpath.relpath(PAGES.get(source, inside), here or ".") + mark + anchor

    return link


def fence_with_title(match: re.Match[str]) -> str:
    """Return the opening line of an example of a rule, with its kind as the title."""
    kind, reason = match.groups()
    title = kind + (f": {reason}" if reason else "")
    return '```python title="{}"'.format(title.replace('"', "'"))


def page_text(source: str, page: str) -> str:
    """Return the text of the page that is made of a file of the repository."""
    if page.startswith("rule/"):
        return rule_page(ROOT / source)
    if page.startswith("schema/"):
        return schema_page(json.loads((ROOT / source).read_text("utf-8")), source)
    if page == "decisions/index.md":
        return decisions_page()
    return (ROOT / source).read_text("utf-8")


def rule_page(path: Path) -> str:
    """Return the page of a rule: what it is, its own page, its source, and what it was measured to
    be worth."""
    rule = load_rule(path.with_suffix(".rule"))
    if not isinstance(rule, Rule):
        raise TypeError("\n".join(str(problem.error) for problem in rule))
    title, _, text = rule.page.partition("\n")
    needs = ", ".join(requirement(need) for need in rule.syntax.needs)
    facts = [
        ("finds", f"{rule.syntax.summary}."),
        ("safety", f"{rule.syntax.safety} ([what that means]({DOCS}/rules.md))"),
        ("needs", needs),
        ("applies", condition(rule)),
    ]
    facts += [
        (f"on {target}", f"{verdict.objection or 'pays'}; {verdict.advice}".rstrip("; "))
        for target in TARGETS
        if (verdict := worth_of(rule, target))
    ]
    header, *rows = [f"| {name} | {value} |" for name, value in facts]
    table = "\n".join((header, "|---|---|", *rows))
    source = path.with_suffix(".rule").read_text("utf-8").rstrip()
    return "\n".join(
        (
            f"# {rule.pack}/{title.removeprefix('# ')}\n",
            f"{table}\n{text.rstrip()}\n",
            f"## The rule\n\n```\n{source}\n```\n",
            *worth_section(rule),
        )
    )


def condition(rule: Rule) -> str:
    """Return when a rule applies, by its pack, its packages and its default."""
    if rule.syntax.off:
        return f"only where its own name is selected: `--select {rule.id}`"
    if any(need.package != "torch" for need in rule.syntax.needs):
        return f"where it is selected: `--select {rule.id}` or `--select {rule.pack}`"
    return "by default, where it pays on the target"


def worth_section(rule: Rule) -> Iterator[str]:
    """Yield the measured cases of a rule, a table for each target, with machine and versions."""
    worths = [worth for target in TARGETS if (worth := worth_of(rule, target)) and worth.cases]
    if not worths:
        return
    yield "## What it is worth\n"
    yield (
        "*Times as fast* is the time of the original divided by that of the rewrite, with its 95%"
        " interval; *memory* is the peak of the rewrite divided by that of the original."
        f" [How it was measured]({DOCS}/bench.md#what-each-rule-is-worth):"
        f" `python benchmarks/worth/rules.py --only {rule.id}`.\n"
    )
    records = json.loads((rule.path.parent / "worth.json").read_text("utf-8"))["measurements"]
    for worth in worths:
        record = next(
            record
            for record in records
            if (record["rule"], record["device"]) == (rule.id, worth.target)
        )
        yield (
            f"### On {record['machine']}\n\nPyTorch {record['torch']}, Python"
            f" {record['python']}, {record['date']}.\n"
        )
        yield worth_table(worth)


def worth_table(worth: Worth) -> str:
    """Return the table of the cases that were measured on a target."""
    lines = [
        "| module | size | shape | mode | times as fast | memory |",
        "|---|---|---|---|---|---|",
    ]
    for case in worth.cases:
        low, median, high = case.time
        lines.append(
            f"| {case.subject} | {case.size} | {case.shape} | {case.mode}"
            f" | {median:.2f} ({low:.2f}–{high:.2f}) | {case.memory:.2f} |"
        )
    return "\n".join(lines) + "\n"


def schema_page(schema: dict[str, Any], source: str) -> str:
    """Return a JSON schema as a page: a table of keys for the document and for each definition."""
    name = posixpath.basename(source)
    lines = [
        f"# JSON of `{schema['title']}`\n",
        f"{schema['description']}\n",
        f"The schema is a file of the package, `regraft/report/schemas/{name}`. Keys in **bold**"
        " are always there.\n",
        "## The document\n",
        *key_table(schema.get("items", schema)),
    ]
    for title, definition in schema.get("$defs", {}).items():
        lines += [f"\n## {title}\n"]
        if "description" in definition:
            lines += [f"{definition['description']}\n"]
        lines += key_table(definition) if "properties" in definition else [type_of(definition)]
    return "\n".join(lines)


def key_table(schema: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the rows of the keys of an object, those of objects in it below them."""
    rows = [] if prefix else ["| key | type | what it says |", "|---|---|---|"]
    required = schema.get("required", [])
    for key, value in schema.get("properties", {}).items():
        name = f"`{prefix}{key}`"
        about = html.escape(value.get("description", "")).replace("|", "\\|")
        rows.append(
            f"| {f'**{name}**' if key in required else name} | {type_of(value)} | {about} |"
        )
        rows += key_table(value, f"{prefix}{key}.")
        if "properties" in value.get("items", {}):
            rows += key_table(value["items"], f"{prefix}{key}[].")
    return rows


def type_of(schema: dict[str, Any]) -> str:
    """Return the type of a value in words; a definition is a link to its section."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return " or ".join(type_of(value) for value in schema[word])
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {type_of(items)}" if isinstance(items, dict) else "list"
    types = schema.get("type", "any")
    return types if isinstance(types, str) else " or ".join(types)


def decisions_page() -> str:
    """Return the list of all decisions."""
    lines = ["# Decisions\n", "Why what looks odd in the source is so.\n"]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{title}]({posixpath.join('decisions', path.name)})")
    return "\n".join(lines) + "\n"
