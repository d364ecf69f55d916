"""What the module `_C` was built for; the build generates this module."""

VERSION: str
"""Version of recoup."""
TORCH_VERSION: str
