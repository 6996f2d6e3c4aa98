"""A small language model in the style of Llama, written by hand."""
