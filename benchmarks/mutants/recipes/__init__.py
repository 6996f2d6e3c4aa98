"""The recipes: how wrong and right edits are made of files."""
