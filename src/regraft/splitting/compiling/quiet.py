"""Silence of what torch, its exporters and the networks themselves print while regions are
compiled."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """In the `with` block drop log records and warnings, and what is printed on stdout: a region
    that an exporter refuses is tried otherwise, or reported."""
    disabled_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled_level)


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """In the `with` block drop what is printed on stdout and stderr: an exporter that fails prints
    the graph that it has so far. A line of progress that falls into the block is dropped, too."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield
