"""What the module `_C` was built for. The build makes it."""

TORCH_VERSION: str
