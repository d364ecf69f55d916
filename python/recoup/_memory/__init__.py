"""Sizes, and the memory of the machine, the process and a GPU."""
