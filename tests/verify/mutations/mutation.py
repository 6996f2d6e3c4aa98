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
        end = min([one for one in ends if one >= 0], default=len(text))
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
    """Groups with one mutation of each definition, so that one run judges many."""
    groups: list[dict[str, Mutation]] = []
    for one in mutations:
        group = next((group for group in groups if one.definition not in group), None)
        if group is None:
            groups.append(group := {})
        group[one.definition] = one
    return tuple(tuple(group.values()) for group in groups)
