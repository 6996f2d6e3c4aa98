"""Split networks as one ONNX file: the host's program becomes `If` and `Loop` around the regions'
graphs."""

from regraft.splitting.emitting.single.onnx_file import (
    FILE,
    SingleFile,
    add_metadata,
    build_onnx_model,
)

__all__ = ["FILE", "SingleFile", "add_metadata", "build_onnx_model"]
