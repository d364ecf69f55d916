"""For PyTorch's own tests: restricts them to the CPU, and records the values that they compare.

A pytest plugin in addition to peer_plugin, for files that use `torch.testing._internal`.
"""

from typing import Any

import torch.testing._internal.common_device_type
import torch.testing._internal.common_utils
from peer_plugin import digest

# Untyped, because parts of it are replaced.
internal: Any = torch.testing._internal
device_types = internal.common_device_type
test_case = internal.common_utils.TestCase
real_instantiate = device_types.instantiate_device_type_tests
real_assert_equal = test_case.assertEqual


def instantiate(test_class: type, scope: dict[str, Any], *_: Any, **__: Any) -> None:
    """Instantiates tests for the CPU only; some copies of these tests name another device."""
    real_instantiate(test_class, scope, only_for=("cpu",))


def assert_equal(self: Any, x: Any, y: Any, *arguments: Any, **options: Any) -> None:
    digest.add(x, y)
    real_assert_equal(self, x, y, *arguments, **options)


device_types.instantiate_device_type_tests = instantiate
test_case.assertEqual = assert_equal
