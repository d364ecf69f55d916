"""Compares two runs of a training step by step, and explains their first difference."""
