"""The pytest plugin of recoup: tests in a memory budget.

It is a package of its own because pytest imports every installed plugin: `recoup` itself, which
loads PyTorch, is imported when a test needs it.
"""
