"""The documentation: links lead somewhere, every rule has a page, messages name pages that exist,
and the site builds."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regraft.rules import BUILT_IN

ROOT = Path(__file__).parents[1]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted(BUILT_IN.rglob("*.md")),
)
RULES = sorted(f"{path.parent.name}/{path.stem}" for path in BUILT_IN.glob("*/*.rule"))
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
NAMED_PAGE = re.compile(r"docs/[\w./-]*\w")
HAS_MKDOCS = importlib.util.find_spec("mkdocs") and importlib.util.find_spec("material")


def links(path: Path) -> Iterator[str]:
    """Yield the links of a page within the repository."""
    for target in LINK.findall(FENCE.sub("", path.read_text("utf-8"))):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site derive them."""
    headings = HEADING.findall(FENCE.sub("", path.read_text("utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in links(path):
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), target


def test_every_rule_is_listed_and_leads_to_its_page() -> None:
    listed = set(links(ROOT / "docs" / "all-rules.md"))
    missing = [rule for rule in RULES if f"../src/regraft/rules/packs/{rule}.md" not in listed]
    assert not missing


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "scripts"])
def test_pages_that_source_and_messages_name_exist(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name in NAMED_PAGE.findall(path.read_text("utf-8")):
            matches = (*ROOT.glob(name), *ROOT.glob(f"{name}*.md"))
            assert matches, f"{path.relative_to(ROOT)} names {name}"


def test_the_readme_is_one_screen_and_starts_with_two_commands() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 80
    assert re.findall(r"^make \w+", text, re.MULTILINE) == ["make demo", "make test"]
    diff, commands = text.index("```diff"), text.index("make demo")
    assert diff < commands < text.index("pip install")


def build_site(folder: Path) -> None:
    """Build the site; fail for a broken link, and for a page that the navigation lacks."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(not HAS_MKDOCS, reason="needs mkdocs-material: pip install -e '.[docs]'")
def test_the_site_has_every_page_and_needs_no_network(tmp_path: Path) -> None:
    build_site(tmp_path)
    for rule in RULES:
        text = (tmp_path / "rule" / f"{rule}.html").read_text("utf-8")
        assert f"<title>{rule} - Regraft</title>" in text
    gelu = (tmp_path / "rule" / "torch" / "gelu.html").read_text("utf-8")
    assert "8.83 (8.80–8.91)" in gelu and "NVIDIA H100" in gelu
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT / "docs").with_suffix(".html")
        assert (tmp_path / page).is_file(), page
    for name in ("index", "changelog", "contributing", "decisions/index", "schema/check"):
        assert (tmp_path / f"{name}.html").is_file(), name
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]*)")
    for path in tmp_path.rglob("*.html"):
        assert not loaded.findall(path.read_text("utf-8")), path
    assert (tmp_path / "search" / "search_index.js").is_file()
