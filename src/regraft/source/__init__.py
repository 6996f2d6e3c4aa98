"""One Python file as text: its bytes and edits, names, imports, layout and diffs."""
