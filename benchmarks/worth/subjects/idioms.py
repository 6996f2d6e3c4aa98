"""The subjects of pack `idioms`."""

from subjects import Subject

SUBJECTS: list[Subject] = []
