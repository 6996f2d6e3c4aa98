"""The artefacts of a split and what writes them: the text of the host, that for batches, and the
single ONNX file."""
