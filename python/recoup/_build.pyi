"""What the module `_C` was built for. The build makes it."""

VERSION: str
"""Of recoup."""
TORCH_VERSION: str
