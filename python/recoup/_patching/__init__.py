"""Wrappers of entry points of PyTorch and Python that touch tensors without an op."""
