"""Every rule of the pack as a runnable specification: the source against the kernel itself, forward and backward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from regraft.dsl.syntax import RuleSyntax  # noqa: E402
from regraft.pattern import alternatives  # noqa: E402
from regraft.rules import Rule, load_rules  # noqa: E402
from rule_specification import check_rule  # noqa: E402

RULES, _ = load_rules(["liger"])
FORMS = [(rule, number) for rule in RULES for number in range(len(rule.syntax.forward))]


def only(rule: Rule, number: int) -> RuleSyntax:
    """The rule with one of its alternatives."""
    text = rule.syntax
    return RuleSyntax(text.name, text.summary, text.safety, text.needs, text.init, (text.forward[number],), text.where)


@pytest.mark.parametrize(("rule", "number"), FORMS, ids=lambda one: getattr(one, "id", str(one)))
def test_the_kernel_does_what_the_source_does(rule: Rule, number: int, launches: list[str]) -> None:
    syntax = only(rule, number)
    cases = check_rule(syntax, dtypes=(torch.float32, torch.float16))
    assert cases >= len(list(alternatives(syntax.forward[0])))
    assert launches, "the kernel never ran"
