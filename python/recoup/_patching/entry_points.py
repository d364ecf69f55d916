"""Python entry points of PyTorch that access raw bytes without an op, made safe inside a scope.

Ops pass through the engine, which makes their arguments resident. The functions wrapped here do
not: they access a storage's bytes directly. The wrappers do one of these first:

    show     an array shows the bytes: until it is gone, nothing is recomputed from them
    escape   a raw pointer or shared memory stays visible, or bytes are written where the engine
             cannot see it: the storage is made resident and stays in place until it dies
    pin      bytes are read during the call only: resident and in place until it returns
    charge   a call makes bytes outside of any op, or moves them out of the pool: they are charged
             when they are made, after room has been made if their size is known
    reading  one call reads many storages (`torch.save`, `deepcopy`): those whose pointer it takes
             are pinned until its end instead of escaping

Tensors that no active engine manages are not affected. `Tensor.__array__`, `storage()`,
`share_memory_()`, `__cuda_array_interface__`, pickling, multiprocessing and the rest of
`TypedStorage` end in an op or in a function listed below, so they need no wrapper of their own.
"""

import functools
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.jit._script
import torch.jit._serialization
import torch.overrides
import torch.serialization
import torch.utils.dlpack

from recoup import _C
from recoup._patching import scripts
from recoup._patching.call_pins import escape, held_pins, pin, pin_each, reading_pins, thread
from recoup._patching.made_outside import making, making_sized, mapping, resizing, sharing
from recoup._patching.patches import Patches, Replacement, hide
from recoup._patching.program_lines import warn_at_program

_Function = Callable[..., Any]

_ADDRESS = (
    "a tensor's address is taken here, through which other code may write at any time. Until the "
    "tensor is gone, neither it nor what is computed from it is evicted. To read values, use "
    "cpu(), tolist() or numpy(); to compare tensors, untyped_storage()._cdata. run.report() lists "
    "such tensors"
)


def _escaping(original: _Function) -> _Function:
    """Lets the first argument escape, and pins other tensors and storages during the call."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if args:
            escape(args[0])
        if len(args) < 2:
            return original(*args, **kwargs)
        return _pinning(original)(*args, **kwargs)

    return wrapper


def _pinning(original: _Function) -> _Function:
    """Pins tensors and storages among the arguments during the call."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with reading_pins() as pins:
            pin_each(args, pins)
            return original(*args, **kwargs)

    return wrapper


def _pinning_trees(original: _Function) -> _Function:
    """As `_pinning`, but also for tensors in nested lists, dictionaries and scripts."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with reading_pins() as pins:
            pin_each(scripts.leaves_of_tree([args, kwargs]), pins)
            return original(*args, **kwargs)

    return wrapper


def _module_of(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def _of_torch(frame: FrameType) -> bool:
    return _module_of(frame).partition(".")[0] == "torch"


def _of_loading(frame: FrameType) -> bool:
    """Whether `torch.load` asks for a pointer, only to check whether a new storage has bytes."""
    inner, outer = _module_of(frame), _module_of(frame.f_back)
    return inner in ("torch.storage", "torch._tensor") and outer == "torch.serialization"


def _of_saving(frame: FrameType, storage: torch.UntypedStorage) -> bool:
    """Whether `torch.save` asks for a pointer, only to compare storages."""
    if thread.saved is None:
        return False
    if _module_of(frame) == "torch.serialization":  # also of one that the program had before
        return True
    return storage._cdata in thread.saved and _of_torch(frame)


def _pointing(original: _Function) -> _Function:
    """Lets the first argument escape, with a warning, or pins it inside a reading call."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if args:
            if thread.pins is None:
                if escape(args[0]):
                    warn_at_program(_ADDRESS)
            else:
                pin(args[0], thread.pins)
        return original(*args, **kwargs)

    return wrapper


def _data_ptr(original: _Function) -> _Function:
    """As `_pointing`; in a reading call it returns the pointer to constant bytes.

    Taking the mutable pointer would count as a write for the storage's observers.
    """
    outside = _pointing(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if thread.pins is None or not args:
            caller = _module_of(sys._getframe(1)) if args and _has_bytes(args[0]) else ""
            if caller in _COMPARERS:
                return _identity(args[0])
            if caller in _READERS:
                return _address_in_place(args[0])
            return outside(*args, **kwargs)
        if isinstance(args[0], torch.UntypedStorage):
            frame = sys._getframe(1)
            if _of_saving(frame, args[0]) or _of_loading(frame):
                return args[0]._cdata if args[0].nbytes() else 0  # only identifies the storage
        pin(args[0], thread.pins)
        return _const_address(args[0])

    return wrapper


# Modules that take addresses to identify tensors, or to read within one call, and write through
# none. They do so when they save: if parameters escaped there, nothing computed from them could be
# evicted after the first checkpoint.
_READERS = frozenset(
    {
        "accelerate.utils.modeling",
        "huggingface_hub.serialization._torch",
        "safetensors.torch",
        "torch.distributed._state_dict_utils",
        "torch.distributed.checkpoint._state_dict_stager",
        "transformers.modeling_utils",
        "transformers.pytorch_utils",
    }
)


# Modules that only compare addresses with one another and with 0.
_COMPARERS = frozenset(
    {
        "torch.autograd.graph",
        "torch.distributed.fsdp._flat_param",
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "torch.distributed.fsdp._runtime_utils",
        "torch.distributed.utils",
    }
)


def _identity(thing: Any) -> int:
    """Equal for two objects that begin at the same byte of one storage; 0 if it has no bytes."""
    if isinstance(thing, torch.UntypedStorage):
        return thing._cdata if thing.nbytes() else 0
    storage: int = torch._C._storage_address(thing)  # type: ignore[attr-defined]
    offset: int = thing.storage_offset() * thing.element_size()
    return storage + offset if thing.numel() else 0


def _has_bytes(thing: Any) -> bool:
    return isinstance(thing, torch.UntypedStorage) or torch._C._has_storage(thing)


def _const_address(thing: Any) -> int:
    tensor = _C.alias_of(thing) if isinstance(thing, torch.UntypedStorage) else thing
    return _C.const_address(tensor)


def _address_in_place(thing: Any) -> int:
    """The address of bytes, which stay in place until they die; replays may still read them."""
    tensor = _C.alias_of(thing) if isinstance(thing, torch.UntypedStorage) else thing
    _C.pin(tensor).keep()
    return _const_address(tensor)


def _reading_call(original: _Function) -> _Function:
    """Pins every storage whose pointer the call takes, until the call ends."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with reading_pins():
            return original(*args, **kwargs)

    return wrapper


def _saving_each(original: _Function) -> _Function:
    """As `_reading_call`, but pins a storage that PyTorch itself reads only while it is written.

    `torch.save` first collects all storages, and asks each for its pointer to identify it. It reads
    them later, in `PyTorchFileWriter.write_record`. So a state may be larger than the budget.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with reading_pins():
            before, thread.saved = thread.saved, {}
            try:
                return original(*args, **kwargs)
            finally:
                thread.saved = before

    return wrapper


def _storage_of(original: _Function) -> _Function:
    """Returns the storage without an escape: functions that access its bytes are wrapped.

    PyTorch's own pickling collects all storages first, and then reads one after the other.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        storage = original(*args, **kwargs)
        # PyTorch copies a GPU's storage to the CPU before it writes.
        if thread.saved is not None and args[0].device.type == "cpu":
            if _of_torch(sys._getframe(1)):
                thread.saved[storage._cdata] = args[0]
        return storage

    return wrapper


def _writing(original: _Function) -> _Function:
    """Pins storages among the arguments until this call ends, and not until an outer one ends."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        saved = thread.saved or {}
        with held_pins() as pins:
            # An evicted storage has no alias, but its tensor can be pinned.
            pin_each((saved.get(getattr(each, "_cdata", 0), each) for each in args), pins)
            return original(*args, **kwargs)

    return wrapper


def _saving(original: _Function) -> _Function:
    """Pins the tensors of a script, the first argument, during the call."""

    @functools.wraps(original)
    def wrapper(script: Any, *args: Any, **kwargs: Any) -> Any:
        with reading_pins() as pins:
            pin_each(scripts.leaves_of(script), pins)
            return original(script, *args, **kwargs)

    return wrapper


def _static(make: Callable[[_Function], _Function]) -> Callable[[_Function], Any]:
    """For static methods of a class."""
    return lambda original: staticmethod(make(original))


def _storage_getitem(original: _Function) -> _Function:
    """Pins the storage to read a number; lets it escape for a slice, which points into it.

    A slice of a mapped file that no op has used is registered by itself: Note [Private memory].
    """
    read, share = _pinning(original), _escaping(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(argument, slice) for argument in args):
            return read(*args, **kwargs)
        if _C.is_unused_mapping(_C.alias_of(args[0])):
            return original(*args, **kwargs)
        return share(*args, **kwargs)

    return wrapper


def _numpy(original: _Function) -> _Function:
    """Lets the tensor escape as long as the array exists.

    With `force` NumPy may show a copy: makes the copy here, where it can escape.
    """

    @functools.wraps(original)
    def wrapper(self: torch.Tensor, *, force: bool = False) -> Any:
        if force and not torch.overrides.has_torch_function_unary(self):
            self = self.detach().cpu().resolve_conj().resolve_neg()
            force = False
        shown = _C.show(self)
        try:
            array = original(self, force=force)
        except BaseException:
            shown.end()
            raise
        # Views of the array, and tensors over its memory, keep the array alive.
        weakref.finalize(array, shown.end).atexit = False
        return array

    return wrapper


def _dlpack(original: _Function) -> _Function:
    """With `copy` DLPack shows a copy: makes the copy here, where it can escape."""

    @functools.wraps(original)
    def wrapper(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("copy"):
            tensor = tensor.detach().clone()
            kwargs["copy"] = None
        escape(tensor)
        return original(tensor, *args, **kwargs)

    return wrapper


_POINT = [
    (torch.Tensor, "const_data_ptr"),
    (torch._C, "_data_address"),
    (torch.UntypedStorage, "_set_from_file"),
]
_ESCAPE = [
    *((torch.Tensor, name) for name in ("apply_", "map_", "map2_")),
    # Methods of storages that the program held before the scope, or made without a tensor.
    *(
        (torch.UntypedStorage, name)
        for name in (
            "__setitem__",
            "_byteswap",
            "_resize_with_addr_",
            "_share_cuda_",
            "_swap_data_ptr_",
            # It only reads, but takes a mutable pointer.
            "_write_file",
            "fill_",
        )
    ),
]
_PIN = [
    (torch.Tensor, "tolist"),
    # On an evicted storage these two end the process; others raise.
    (torch.UntypedStorage, "is_shared"),
    (torch.UntypedStorage, "_get_filename"),
    (torch.UntypedStorage, "_shared_decref"),
    (torch.UntypedStorage, "_shared_incref"),
    (torch.UntypedStorage, "copy_"),
    (torch._C, "_is_alias_of"),
    (torch._C, "_is_cow_tensor"),
]
_PIN_TREES = [
    # Programs compiled ahead of time read their arguments by pointer.
    (torch._C._aoti.AOTIModelPackageLoader, "run"),
    (torch._C._aoti.AOTIModelPackageLoader, "boxed_run"),
    (torch._C._aoti.AOTIModelContainerRunnerCpu, "run"),
    # Picklers in C++ that get values, but no module.
    (torch._C, "_pickle_save"),
    (torch._C, "_save_parameters"),
    # PyTorch reads the state under the generator's lock, for which a replay might wait.
    (torch.Generator, "set_state"),
    (torch.Generator, "__setstate__"),
]
_READ = [
    (torch.Tensor, "__deepcopy__"),
    (torch.serialization, "_legacy_save"),
    # Loading accesses the storages that it makes.
    (torch.serialization, "_load"),
    (torch.serialization, "_legacy_load"),
]
# TorchScript's pickler is in C++ and accesses all bytes itself.
_SAVE = [
    *(
        (torch.jit._script.RecursiveScriptModule, name)
        for name in (
            "save",
            "save_to_buffer",
            "_save_for_lite_interpreter",
            "_save_to_buffer_for_lite_interpreter",
        )
    ),
    (torch._C.ScriptFunction, "save"),
    (torch._C.ScriptFunction, "save_to_buffer"),
    (torch.jit, "save_jit_module_to_flatbuffer"),
    (torch.jit._serialization, "save_jit_module_to_flatbuffer"),
]
_MAKE = [
    (torch, "from_numpy"),
    (torch, "frombuffer"),
    (torch, "from_dlpack"),
    (torch.utils.dlpack, "from_dlpack"),
    (torch._C, "_from_dlpack"),
    (torch, "asarray"),
    (torch, "as_tensor"),
]
_MAKE_STORAGE = ["from_buffer", "_new_with_file", "_new_with_weak_ptr"]
_MAKE_SIZED = [
    "_new_shared_fd_cpu",
    "_new_shared_filename_cpu",
    "_new_using_fd_cpu",
    "_new_using_filename_cpu",
]
_DLPACK = [
    (torch._C, "_to_dlpack"),
    (torch._C, "_to_dlpack_versioned"),
    (torch, "to_dlpack"),
    (torch.utils.dlpack, "to_dlpack"),
]
_ROWS: list[tuple[Any, str, Callable[[_Function], Any]]] = [
    *((owner, name, _pointing) for owner, name in _POINT),
    (torch.Tensor, "untyped_storage", _storage_of),
    (torch.Tensor, "data_ptr", _data_ptr),
    (torch.UntypedStorage, "data_ptr", _data_ptr),
    *((owner, name, _escaping) for owner, name in _ESCAPE),
    *((owner, name, _pinning) for owner, name in _PIN),
    *((owner, name, _pinning_trees) for owner, name in _PIN_TREES),
    *((owner, name, _reading_call) for owner, name in _READ),
    (torch.serialization, "_save", _saving_each),
    (torch._C.PyTorchFileWriter, "write_record", _writing),
    *((owner, name, _saving) for owner, name in _SAVE),
    *((owner, name, _dlpack) for owner, name in _DLPACK),
    *((owner, name, making) for owner, name in _MAKE),
    *((torch.UntypedStorage, name, _static(making)) for name in _MAKE_STORAGE),
    *((torch.UntypedStorage, name, _static(making_sized)) for name in _MAKE_SIZED),
    (torch.UntypedStorage, "__new__", _static(making_sized)),
    (torch.UntypedStorage, "from_file", _static(mapping)),
    (torch.UntypedStorage, "_share_fd_cpu_", sharing),
    (torch.UntypedStorage, "_share_filename_cpu_", sharing),
    (torch.UntypedStorage, "resize_", resizing),
    (torch.Tensor, "numpy", _numpy),
    (torch.UntypedStorage, "__getitem__", _storage_getitem),
    # C functions with which extensions take a tensor's pointer without calling Python. If the
    # attribute is missing they call `__dlpack__`.
    (torch.Tensor, "__dlpack_c_exchange_api__", hide),
]


def _learn_slices() -> None:
    whole = torch.UntypedStorage(2)  # type: ignore[no-untyped-call]
    _C.learn_slices(_C.alias_of(whole[0:1]), _C.alias_of(whole))


_learn_slices()

_SINCE = {"_resize_with_addr_": "2.13", "_swap_data_ptr_": "2.12", "const_data_ptr": "2.13"}
PATCHES = Patches([Replacement(*row, since=_SINCE.get(row[1], "")) for row in _ROWS])
"""Installed while a scope is active."""
