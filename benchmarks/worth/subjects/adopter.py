"""The subjects of pack `adopter`."""

from subjects import Subject

SUBJECTS: list[Subject] = []
