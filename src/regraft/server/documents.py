"""The documents that an editor has open: the analysis of each is that of its latest text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.uris import to_fs_path

from regraft.server.analysis import Analysis

UNTITLED = "untitled"
NOTEBOOK_CELL = "vscode-notebook-cell"
_UNREAD_SUFFIXES = (".pyi", ".ipynb")


@dataclass(slots=True)
class Document:
    """An open document.

    file         the file that it stands for; an untitled document stands for one of its folder
    folder       the folder of the workspace that it belongs to, where a check would run
    is_read      whether a check of that folder reads the file
    generation   the number of changes so far, of the text or of what else counts
    analysis     the analysis of the latest text, or of one before
    whole        the last analysis of a text that could be parsed
    is_awaited   whether somebody waits for the analysis of the whole text
    woken        set by a change, and where somebody waits
    published    the diagnostics that the editor shows, and the text that they are about
    task         the analysis that runs; None before the first
    """

    uri: str
    file: Path
    folder: Path
    is_read: bool = True
    generation: int = 0
    analysis: Analysis | None = None
    whole: Analysis | None = None
    is_awaited: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    published: list[types.Diagnostic] = field(default_factory=list)
    published_text: bytes = b""
    task: asyncio.Task[None] | None = None


def document_of(uri: str, folders: list[Path]) -> Document | None:
    """Return the document of a URI; None for one that no file of Python stands for, such as the
    earlier version of a file in a comparison."""
    scheme = urlsplit(uri).scheme
    if scheme == UNTITLED:
        folder = folders[0] if folders else Path.cwd()
        name = Path(unquote(urlsplit(uri).path)).name or "Untitled"
        return Document(uri, folder / name, folder)
    path = to_fs_path(uri)
    if scheme != "file" or not path or "\0" in path or Path(path).suffix in _UNREAD_SUFFIXES:
        return None
    file = Path(path)
    around = [folder for folder in folders if file.is_relative_to(folder)]
    return Document(
        uri, file, max(around, key=lambda folder: len(folder.parts), default=file.parent)
    )
