"""Reports of a run: text, memory holders, failures."""
