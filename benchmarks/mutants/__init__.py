"""Wrong and right edits of real model files, and how often the verifier calls them proved."""
