"""Test the cache of parsed rules: what it returns is what parsing returns, also where it fails."""

from pathlib import Path

import pytest

from regraft.dsl import parse_rule
from regraft.dsl.syntax import RuleSyntax
from regraft.rules import parsed_rules_cache
from regraft.rules.loading import BUILT_IN, Rule, load_rule, rule_paths
from regraft.source.cache_key import write_entry

RULE = BUILT_IN / "torch" / "rotary.rule"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own."""
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("path", rule_paths().values(), ids=lambda path: path.stem)
def test_an_entry_holds_the_rule_with_its_positions(path: Path) -> None:
    rule = parse_rule(path.read_text("utf-8"))
    assert isinstance(rule, RuleSyntax)
    parsed_rules_cache.store(parsed_rules_cache.key_of("name", "text"), rule)
    loaded = parsed_rules_cache.load(parsed_rules_cache.key_of("name", "text"))
    assert loaded == rule and repr(loaded) == repr(rule)  # equality leaves positions out
    assert parsed_rules_cache.load(parsed_rules_cache.key_of("name", "another text")) is None


def test_a_rule_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_rule(RULE)

    def parse(text: str) -> RuleSyntax:
        raise AssertionError(f"parsed again: {text}")

    monkeypatch.setattr("regraft.dsl.parser.parse_rule", parse)
    assert load_rule(RULE) == first and isinstance(first, Rule)


@pytest.mark.parametrize("content", [b"", b"damaged\n{}", b"no check sum"])
def test_a_damaged_entry_is_written_again(cache: Path, content: bytes) -> None:
    first = load_rule(RULE)
    (entry,) = cache.glob("rules/??/*")
    good = entry.read_bytes()
    entry.write_bytes(content)
    assert load_rule(RULE) == first
    assert entry.read_bytes() == good


@pytest.mark.parametrize("content", [b"{}", b'{"RuleSyntax":[]}', b'{"Nope":[1]}', b"[" * 100000])
def test_an_entry_that_holds_no_rule_is_parsed_again(cache: Path, content: bytes) -> None:
    first = load_rule(RULE)
    (entry,) = cache.glob("rules/??/*")
    write_entry(entry, content)
    assert load_rule(RULE) == first


def test_a_cache_that_cannot_be_written_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(blocked))
    assert isinstance(load_rule(RULE), Rule)


def test_a_rule_with_problems_is_not_stored(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "own" / "name.rule"
    path.parent.mkdir()
    path.write_text(RULE.read_text("utf-8"))
    path.with_suffix(".md").write_text(RULE.with_suffix(".md").read_text("utf-8"))
    for _ in range(2):
        problems = load_rule(path)
        assert not isinstance(problems, Rule) and "is called rotary" in problems[0].message
    assert not (cache / "rules").exists()
