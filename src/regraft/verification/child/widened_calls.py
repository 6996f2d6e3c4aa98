"""Make the calls with which a definition is compared beyond a recorded call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regraft.execution.nested import map_leaves
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_comparison import Sides, sides_of
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan
from regraft.verification.child.call_recording import Recorded
from regraft.verification.child.checks.argument_combinations import (
    changed_names,
    combined_calls,
    optional_names,
    single_calls,
)
from regraft.verification.child.checks.argument_variants import method_name
from regraft.verification.child.checks.attribute_variants import (
    attribute_calls_with_arguments,
    is_varied_attribute,
)
from regraft.verification.child.checks.comparison_domain import domain_of, reads_of_arguments
from regraft.verification.child.checks.domain_variants import calls_beyond
from regraft.verification.child.checks.optional_values import (
    calls_without_options,
    optional_value_calls,
)
from regraft.verification.child.checks.symbolic_sizes import sizes_of_guards
from regraft.verification.child.comparison_setting import Setting
from regraft.verification.child.session import Session


def widened_calls(entry: Recorded, setting: Setting, session: Session) -> tuple[Call, ...]:
    """Return calls with other masks, sizes and values than a recorded call; those for gaps alone
    where the calls of the definition with arguments of the same classes in the same mode were
    widened before, with the same values of attributes that only one version reads.

    Adds to `session.widened`. In a thorough session path and subject count as well. Sizes that
    guards of the captured graphs compare are tried, too.
    """
    kinds = map_leaves((entry.call.args, dict(entry.call.kwargs)), lambda leaf: type(leaf).__name__)
    place = f" {entry.path} {setting.subject.name}" if session.thorough else ""
    values = values_read_by_one_version(entry, setting, session)
    key = entry.definition, f"{kinds} {setting.mode}{place}{values}"
    sides = sides_of(entry, setting, session)
    if key in session.widened:
        return _calls_for_gaps(entry.call, setting, sides, session)
    session.widened.add(key)
    domain = domain_of(entry.definition, session)
    sizes = sizes_of_guards(
        sides.original, sides.changed, entry.call, entry.definition, session.ledger
    )
    if sizes:
        constants = replace(
            domain.constants, sizes=tuple(dict.fromkeys((*domain.constants.sizes, *sizes)))
        )
        domain = replace(domain, constants=constants)
    combined = _combined_calls(entry.call, sides, session)
    return (*calls_beyond(entry.call, sides.original, domain), *combined)


def _calls_for_gaps(
    call: Call, setting: Setting, sides: Sides, session: Session
) -> tuple[Call, ...]:
    """Return calls with and without optional inputs, once for each subject, where a condition of
    the changed lines ran and lacks a result: another subject may have the attributes with which
    such an input decides. Return () elsewhere."""
    key = sides.definition, f"gaps in {setting.subject.name}, {setting.mode}"
    if key in session.widened or not session.condition_gaps(sides.definition):
        return ()
    session.widened.add(key)
    original = sides.original
    return (*optional_value_calls(call, original), *calls_without_options(call, original))


def _combined_calls(call: Call, sides: Sides, session: Session) -> list[Call]:
    """Return calls in which several arguments that changed lines read have another value, and
    those with another attribute that they read and another argument. Sets of arguments that both
    versions refuse alike are added to `session.given_together`."""
    original = sides.original
    key = sides.definition, method_name(original.callable)
    reads = reads_of_arguments(*key, session)
    combinations = combined_calls(call, original, reads)
    for names, refused_call in combinations.refused.items():
        plan = Plan(gradients=False)
        outcomes = [execute(target, refused_call, plan) for target in (original, sides.changed)]
        if type(outcomes[0].error) is type(outcomes[1].error):
            session.given_together.setdefault(key, set()).add(names)
    attributes = reads.attributes
    calls = combinations.calls
    if reads.names and any(is_varied_attribute(name, original.module) for name in attributes):
        calls += attribute_calls_with_arguments(
            single_calls(call, original, reads), original.module, attributes
        )
    return calls


def note_given_arguments(call: Call, sides: Sides, session: Session) -> None:
    """Add to `session.given_together` which arguments that changed lines read have another value
    than their default in a call that was compared; nothing for changes by rules."""
    if session.by_rules or not session.beyond:
        return
    function = sides.original.callable
    key = sides.definition, method_name(function)
    reads = reads_of_arguments(*key, session)
    considered = frozenset(optional_names(call, function, reads))
    session.combined_arguments.setdefault(key, set()).update(considered)
    session.given_together.setdefault(key, set()).add(
        changed_names(call, function, reads) & considered
    )


def values_read_by_one_version(entry: Recorded, setting: Setting, session: Session) -> str:
    """Return the values of the attributes that the changed lines of one version read and the other
    version does not, of the module of a recorded call, as the text of a list of pairs (name,
    value); "" without such attributes, and where `session.beyond` is not set. Values other than
    numbers, truth values and strings are left out.

    A number in the place of such an attribute is right for one of its values.
    """
    names = (
        domain_of(entry.definition, session).read_by_one_version if session.beyond else frozenset()
    )
    module = module_of(entry, setting) if names else None
    values = vars(module) if module is not None else {}
    plain = [(name, values[name]) for name in sorted(names & values.keys())]
    return str([pair for pair in plain if isinstance(pair[1], bool | int | float | str)] or "")


def module_of(entry: Recorded, setting: Setting) -> Any:
    """Return the module of the original that a recorded call is of; None for a function, and where
    the original has no such module."""
    modules = dict(setting.pair.original.named_modules())
    return modules.get(entry.path) if entry.path is not None else None
