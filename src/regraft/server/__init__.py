"""Servers for editors (LSP) and for other programs (MCP). They import no torch: what runs models
is run in processes of its own."""
