"""The subjects of pack `liger`."""

from subjects import Subject

SUBJECTS: list[Subject] = []
