"""Members of PyTorch's classes and modules that are not ops, found by reflection.

Functions whose signature accepts neither a tensor nor a container of tensors are left out.
"""

import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
import torch.jit._script

CLASSES: dict[str, Any] = {
    "Tensor": torch.Tensor,
    "UntypedStorage": torch.UntypedStorage,
    "TypedStorage": torch.TypedStorage,
    "RecursiveScriptModule": torch.jit._script.RecursiveScriptModule,
    "Generator": torch.Generator,
}
MODULES: dict[str, Any] = {"torch": torch._C._VariableFunctions, "torch._C": torch._C}

_UNCHECKED = "takes what is no argument of its for one"
# Calls of these break later calls, or their results differ for reasons that recoup does not cause.
SKIPPED = {
    "__dir__": "the wrapped names are there",
    "__dlpack_c_exchange_api__": "is hidden",
    "_push_on_torch_dispatch_stack": "takes a mode",
    "_push_on_torch_function_stack": "takes a mode",
    "_set_skip_next_torch_function": "takes a flag and returns with an error set for all else",
    "_any_output_is_alias_to_input_or_output": "reads more arguments than it has got",
    "_commit_update": "takes each tensor for a functional one",
    "_set_from_file": "takes each number for a file's; `torch.load` of old files calls it",
    "_fuse_to_static_module": _UNCHECKED,
    "_get_value_trace": _UNCHECKED,
    "_replace_": _UNCHECKED,
    "_set_thread_name": _UNCHECKED,
    "_unsafe_reset_storage": "leaves a tensor that ends the process when it is touched",
    "_wrap_tensor_impl": _UNCHECKED,
    "_write_file": "takes each number for a file's; `torch.save` of old files calls it",
}
# Argument types in pybind11 signatures that cannot hold a tensor.
_HARMLESS = re.compile(
    r"(str|bool|bytes|int|float|None|torch\.(device|dtype|Stream)|typing\.Supports\w+"
    r"|(torch\._C\.|c10::)DispatchKey(Set)?|List\[int\]|collections\.abc\.\w+\[str(, str)?\]| \| )+"
)


@dataclass(frozen=True)
class Member:
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    @property
    def skipped(self) -> bool:
        return self.name in SKIPPED

    def find(self) -> Any:
        owner = (CLASSES | MODULES)[self.owner]
        return getattr(owner, self.name, None)


def _ops() -> set[str]:
    schemas = torch._C._jit_get_all_schemas()
    return {s.name.removeprefix("aten::") for s in schemas if s.name.startswith("aten::")}


def _takes_nothing(function: Any) -> bool:
    """Whether no overload accepts a tensor or an object that may hold one."""
    calls = re.findall(r"^(?:\d+\. )?\w+\((.*)\) -> ", function.__doc__ or "", re.MULTILINE)
    calls = [call for call in calls if call != "*args, **kwargs"]
    types = [kind for call in calls for kind in re.findall(r"\w+: ([^,=]+(?:\[.*?\])?)", call)]
    return bool(calls) and all(_HARMLESS.fullmatch(kind.strip()) for kind in types)


def _static(kind: Any, name: str) -> Any:
    return inspect.getattr_static(kind, name, None)


class _Bare:
    """A class with nothing but the attributes that this version of Python gives to every class."""

    named: int = 0


def _of_classes() -> list[Member]:
    ops = _ops()
    given = {name for name in dir(_Bare) if not callable(getattr(_Bare, name))}
    inherited = (object, torch.nn.Module)
    return [
        Member(owner, name)
        for owner, kind in CLASSES.items()
        for name in dir(kind)
        if not (owner == "Tensor" and name in ops)
        and name not in given
        and not any(_static(base, name) is _static(kind, name) for base in inherited)
    ]


def _of_modules() -> list[Member]:
    ops = _ops()
    return [
        Member(owner, name)
        for owner, module in MODULES.items()
        for name in dir(module)
        if callable(function := getattr(module, name))
        and not inspect.isclass(function)
        and not (name in ops or name.startswith("__"))
        and not _takes_nothing(function)
    ]


MEMBERS = _of_classes() + _of_modules()
