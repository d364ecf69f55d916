"""For PyTorch's own tests: all their devices are the CPU, and what they compare is recorded.

A pytest plugin beside peer_plugin, loaded for files that use `torch.testing._internal`.
"""

from typing import Any

import torch.testing._internal.common_device_type as device_types
from peer_plugin import digest
from torch.testing._internal.common_utils import TestCase

real_instantiate = device_types.instantiate_device_type_tests
real_assert_equal = TestCase.assertEqual


def instantiate(test_class: type, scope: dict[str, Any], *_: Any, **__: Any) -> None:
    """Copies of these tests name the device of whoever made the copy."""
    real_instantiate(test_class, scope, only_for=("cpu",))


def assert_equal(self: TestCase, x: Any, y: Any, *arguments: Any, **options: Any) -> None:
    digest.add(x, y)
    real_assert_equal(self, x, y, *arguments, **options)


device_types.instantiate_device_type_tests = instantiate
TestCase.assertEqual = assert_equal
