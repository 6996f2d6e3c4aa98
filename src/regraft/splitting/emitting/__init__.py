"""What a split leaves: the text of the host, that for batches, and the single ONNX file."""
