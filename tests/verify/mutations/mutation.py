"""What a sabotaged rewrite is: one replacement in one definition of a model file, and what running
it must show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replace `old`, which stands once in `definition`, by `new`.

    expected  the verdict; "proved" only for controls: rewrites that are right
    reason    what the verdict's reason must mention
    """

    definition: str
    old: str
    new: str
    why: str
    expected: str = "refuted"
    reason: str = ""

    def apply(self, text: str) -> str:
        """The file with this mutation; raises ValueError where the text to replace does not stand
        there once."""
        starts = [
            i
            for i in range(len(text))
            if text.startswith((f"\nclass {self.definition}(", f"\ndef {self.definition}("), i)
        ]
        if len(starts) != 1:
            raise ValueError(f"{self.definition} is not defined once")
        start = starts[0] + 1
        ends = [text.find(mark, start) for mark in ("\n\n\n", "\n@")]
        end = min([place for place in ends if place >= 0], default=len(text))
        body = text[start:end]
        if body.count(self.old) != 1:
            raise ValueError(
                f"{self.old!r} stands {body.count(self.old)} times in {self.definition}"
            )
        return text[:start] + body.replace(self.old, self.new) + text[end:]


def right(definition: str, old: str, new: str, why: str) -> Mutation:
    """A control: a rewrite that changes nothing."""
    return Mutation(definition, old, new, why, "proved")


def rounds(mutations: tuple[Mutation, ...]) -> tuple[tuple[Mutation, ...], ...]:
    """Return groups with one mutation of each definition, so that one run judges many; right
    rewrites, which take longer, are apart from wrong ones."""
    groups: list[dict[str, Mutation]] = []
    for mutation in mutations:
        group = next((group for group in groups if _fits(mutation, group)), None)
        if group is None:
            groups.append(group := {})
        group[mutation.definition] = mutation
    return tuple(tuple(group.values()) for group in groups)


def _fits(mutation: Mutation, group: dict[str, Mutation]) -> bool:
    """Return whether a group by definition lacks a mutation's definition, and holds mutations with
    the same expected verdict."""
    return mutation.definition not in group and all(
        mutation.expected == member.expected for member in group.values()
    )
