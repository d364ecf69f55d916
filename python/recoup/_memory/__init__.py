"""Sizes, and how much memory the machine, the process and a GPU have."""
