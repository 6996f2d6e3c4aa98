"""Rules: `packs/<pack>/<name>.rule`, each with a page that is its documentation and its test."""

from regraft.rules.loading import (
    BUILT_IN,
    Example,
    Rule,
    RuleProblem,
    load_rule,
    load_rules,
    page_examples,
)

__all__ = ["BUILT_IN", "Example", "Rule", "RuleProblem", "load_rule", "load_rules", "page_examples"]
