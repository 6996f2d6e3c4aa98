"""Split networks as one ONNX file: the host's program becomes `If` and `Loop` around the regions'
graphs."""

from regraft.splitting.emitting.single.file import FILE, SingleFile, note, single_file

__all__ = ["FILE", "SingleFile", "note", "single_file"]
