"""Reports as one HTML page each, which needs no other file and no network."""
