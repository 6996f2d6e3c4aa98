"""The emitters of artefacts by name: a host with sub-networks, the same for batches, one file."""

from __future__ import annotations

from regraft.splitting.emitting import emit_batches, emit_directory, emit_file
from regraft.splitting.emitting.artefact_protocol import Emitter

EMITTERS: dict[str, Emitter] = {
    "directory": emit_directory.EMITTER,
    "batches": emit_batches.EMITTER,
    "file": emit_file.EMITTER,
}
