"""Higher-order ops (`torch.cond`, eager `flex_attention`) while a scope is active.

The engine intercepts ops through dispatch key Fake, which is on for the whole scope. Higher-order
ops are dispatched in Python, have no kernel for that key and would raise. So the key is skipped for
them; the ops that they run inside are intercepted as all others.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._ops

from recoup._patching.patches import Patches, Replacement

_FAKE = torch._C._dispatch_key_parse("Fake")


def _without_fake(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dispatch(
        self: torch._ops.HigherOrderOperator, dispatch_key: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        if dispatch_key == _FAKE:
            keys = torch._ops._compute_keyset(  # type: ignore[no-untyped-call]
                args, kwargs, self.non_fallthrough_keys
            )
            dispatch_key = keys.remove(_FAKE).highestPriorityTypeId()
        return original(self, dispatch_key, *args, **kwargs)

    return dispatch


PATCHES = Patches([Replacement(torch._ops.HigherOrderOperator, "dispatch", _without_fake)])
"""Installed while a scope is active."""
