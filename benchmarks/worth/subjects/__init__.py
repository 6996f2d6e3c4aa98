"""The small modules on which the worth of rules is measured: source text as people write it, and
the sizes at which it runs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

PACKS = ("adopter", "idioms", "liger", "torch")
SIZES = ("small", "typical", "large")
MODES = ("inference", "training")
Size = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """A module that a rule rewrites.

    rule     the id of the rule
    shape    a template of the words that say how large it is: "{batch} x {width}"
    sizes    the numbers of each of SIZES; `Subject` and `inputs` of the text are each given those
             that they have parameters for
    text     the source of a file with a class `Subject(torch.nn.Module)`, and a function `inputs`,
             which returns the arguments of its `forward`; the first (or only) result is compared
    name     what tells it from other subjects of the rule
    modes    those of MODES in which it runs
    devices  the types of devices on which it is measured
    dtype    the name of the dtype of parameters and inputs; "" for that of the measurement
    also     further rules that both versions are rewritten by
    """

    rule: str
    shape: str
    sizes: Mapping[str, Size]
    text: str
    name: str = ""
    modes: tuple[str, ...] = MODES
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtype: str = ""
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The rule's id, and the name in parentheses."""
        return f"{self.rule} ({self.name})" if self.name else self.rule


def scaled(small: Size, typical: Size, large: Size) -> dict[str, Size]:
    """Return the sizes by their names."""
    return dict(zip(SIZES, (small, typical, large), strict=True))


SEQUENCE = scaled(
    {"batch": 2, "length": 16, "width": 32},
    {"batch": 4, "length": 512, "width": 768},
    {"batch": 8, "length": 2048, "width": 1024},
)
SEQUENCE_SHAPE = "{batch} x {length} x {width}"
ATTENTION = scaled(
    {"batch": 2, "length": 16, "width": 32, "heads": 4},
    {"batch": 4, "length": 512, "width": 768, "heads": 12},
    {"batch": 1, "length": 2048, "width": 1024, "heads": 16},
)
ATTENTION_SHAPE = "{batch} x {length} x {width}, {heads} heads"
VOCABULARY = scaled(
    {"batch": 2, "length": 16, "width": 32, "vocabulary": 100},
    {"batch": 1, "length": 512, "width": 512, "vocabulary": 32_000},
    {"batch": 1, "length": 1024, "width": 512, "vocabulary": 50_257},
)
VOCABULARY_SHAPE = "{batch} x {length} x {width}, {vocabulary} classes"


def subjects(device: str) -> list[Subject]:
    """Return the subjects that are measured on a type of device, in order of rules and names."""
    listed = [
        subject
        for pack in PACKS
        for subject in importlib.import_module(f"subjects.{pack}").SUBJECTS
        if device in subject.devices
    ]
    return sorted(listed, key=lambda subject: (subject.rule, subject.name))
