"""The test device as PyTorch's device "fakegpu". `install` changes the whole process.

RECOUP_TEST_DEVICE is the path of `_test_device`, if it lies outside of `build/python`:

    cmake --build build/python --target recoup_test_device
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

NAME = "fakegpu"
ALLOCATOR = os.environ.get("FAKEGPU_ALLOCATOR", "native")  # see test_device/device.h
ROOT = Path(__file__).resolve().parents[3]


def path_of_extension(name: str = "_test_device") -> Path | None:
    """Path of `_test_device` or of another test module of the same build; None if not built."""
    folders = [folder / "tests/torch" for folder in ROOT.glob("build/python")]
    if given := os.environ.get("RECOUP_TEST_DEVICE"):
        folders = [Path(given).parents[1]]
    built = [path for folder in folders for path in folder.glob(f"*/{name}*.so")]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)


def load_extension(name: str = "_test_device") -> Any:
    path = path_of_extension(name)
    assert path, "cmake --build build/python --target recoup_test_device"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


_test_device: Any = None


def install(**options: int) -> Any:
    """Registers the device; returns `_test_device`. To be called before the first backward pass.

    In that pass, PyTorch's autograd starts its threads, one for each device.
    """
    global _test_device
    _test_device = load_extension()
    _test_device.install(allocator=ALLOCATOR, **options)
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    torch.utils.generate_methods_for_privateuse1_backend()
    return _test_device


def _index(device: Any = None) -> int:
    if device is None:
        return _test_device.current_device()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return _test_device.current_device() if index is None else index


def get_rng_state(device: Any = None) -> torch.Tensor:
    return _test_device.default_generator(_index(device)).get_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    _test_device.default_generator(_index(device)).set_state(state)


def manual_seed(seed: int) -> None:
    _test_device.default_generator(_index()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for device in range(_test_device.device_count()):
        _test_device.default_generator(device).manual_seed(seed)


@contextlib.contextmanager
def use_device(device: Any) -> Iterator[None]:
    before = _test_device.current_device()
    _test_device.set_device(_index(device))
    try:
        yield
    finally:
        _test_device.set_device(before)


def _module() -> types.ModuleType:
    """`torch.fakegpu`: the functions that PyTorch expects in the module of a device."""
    module = types.ModuleType(f"torch.{NAME}")
    for function in (get_rng_state, set_rng_state, manual_seed, manual_seed_all):
        setattr(module, function.__name__, function)
    for name in ("device_count", "current_device", "synchronize", "empty_cache"):
        setattr(module, name, getattr(_test_device, name))
    attributes = {
        "device": use_device,
        "set_device": lambda device: _test_device.set_device(_index(device)),
        "current_stream": lambda device=None: torch.accelerator.current_stream(_index(device)),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "_is_in_bad_fork": lambda: False,
        "_lazy_init": lambda: None,
    }
    for name, value in attributes.items():
        setattr(module, name, value)
    return module
