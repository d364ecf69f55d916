"""Assumptions about PyTorch's internals, checked in its headers."""

import re
from collections.abc import Iterable
from pathlib import Path

import torch

from torch_versions import only_here

ROOT = Path(__file__).parents[3]
HEADERS = Path(torch.__file__).parent / "include"
STUB = Path(torch.__file__).parent / "_C" / "__init__.pyi"


def header(name: str) -> str:
    """The text of a header without comments."""
    return re.sub(r"//.*", "", (HEADERS / name).read_text(encoding="utf-8"))


def source(name: str) -> str:
    return re.sub(r"//.*", "", (ROOT / name).read_text(encoding="utf-8"))


def body(name: str, declaration: str) -> str:
    """The body of a class or an enumeration."""
    text = header(name)
    start = text.index(declaration)
    return text[start : text.index("\n};", start)]


def private_members(text: str) -> set[str]:
    """Names of private members, which end in an underscore in PyTorch."""
    return set(
        re.findall(r"^ .*\b(\w+_)(?: : 1)?(?: = .*|\{.*\})?;", text.partition("private:")[2], re.M)
    )


# ---- settings of a thread ----

RECORDED = "Settings::OfThread has it"
ABOVE = "is of what lies above the ops that recoup sees"

THREAD_STATE = {
    "dispatch_key_": "replay_excluded in payload.cpp and Settings::OfThread have what counts",
    "debug_info_": "is of profilers",
    "rf_tls_": "is of observers",
    "functorch_tls_": ABOVE,
    "autograd_tls_": RECORDED,
    "torch_dispatch_mode_state_": ABOVE,
    "python_dispatcher_state_": ABOVE,
    "python_torch_function_state_": ABOVE,
    "saved_tensors_default_hooks_state_": ABOVE,
    "node_creation_hooks_state_ @ >=2.14": ABOVE,
    "functionalization_reapply_views_state_": ABOVE,
    "dtensor_allow_implicit_replication_": ABOVE,
    "saved_objects_": ABOVE,
    "autocast_dtypes_": RECORDED,
}
AUTOGRAD_STATE = {
    "graph_exec_group_": "is of compiled graphs",
    "grad_mode_": RECORDED,
    "inference_mode_": RECORDED,
    "fw_grad_mode_": RECORDED,
    "multithreading_enabled_": "is of backward, which no replay runs",
    "view_replay_enabled_": ABOVE,
    "grad_layout_enforcement_enabled_ @ >=2.13": "is of backward, which no replay runs",
}
AUTOCAST = {
    "set_autocast_enabled": RECORDED,
    "set_autocast_dtype": RECORDED,
    "set_autocast_cache_enabled": RECORDED,
}


def test_settings_that_a_thread_passes_on_are_reviewed() -> None:
    """at::ThreadLocalState copies the settings of a thread to another one."""
    state = body("ATen/ThreadLocalState.h", "class TORCH_API ThreadLocalState {")
    assert private_members(state) == set(only_here(THREAD_STATE))


def test_settings_of_autograd_are_reviewed() -> None:
    state = body("c10/core/AutogradState.h", "struct C10_API AutogradState {")
    assert private_members(state) == set(only_here(AUTOGRAD_STATE))


def test_settings_of_autocast_are_reviewed() -> None:
    setters = re.findall(r"TORCH_API void (set_\w+)\(", header("ATen/autocast_mode.h"))
    assert set(setters) == set(AUTOCAST)


# ---- dispatch keys ----

# Keys above Fake that a replay does not exclude.
KEPT_KEYS = {
    **dict.fromkeys(("Conjugate", "Negative", "ZeroTensor"), "complex kernels rely on them"),
    "Named @ <2.13": "does nothing for tensors without names",
    "BatchedNestedTensor": "is of a tensor, and those that a replay makes are plain",
    "DeferredInit": "PyTorch itself has nothing there",
    "TESTING_ONLY_GenericWrapper": "is of PyTorch's tests",
    "TESTING_ONLY_GenericMode": "is of PyTorch's tests",
}


def enumerated(name: str, declaration: str, end: str) -> list[str]:
    text = header(name)
    start = text.index(declaration)
    found = re.findall(r"^ *(\w+)(?: = \w+)?,", text[start : text.index(end, start)], re.MULTILINE)
    assert found
    return found


def key_set(name: str, text: str) -> set[str]:
    """The keys in the definition of a key set."""
    start = text.index(name)
    return set(re.findall(r"DispatchKey::(\w+)", text[start : text.index(";", start)]))


def test_every_key_above_ours_is_reviewed() -> None:
    keys = enumerated(
        "c10/core/DispatchKey.h", "enum class DispatchKey :", "EndOfFunctionalityKeys,"
    )
    above = set(keys[keys.index("Fake") + 1 :])
    sets = header("c10/core/DispatchKeySet.h")
    of_autograd = key_set("autograd_dispatch_keyset =", sets) | key_set(
        "autograd_dispatch_keyset_with_ADInplaceOrView =", sets
    )
    of_autocast = key_set("autocast_dispatch_keyset =", sets)  # part of Settings
    excluded = key_set("DispatchKeySet keys =", source("csrc/torch/ops/payload.cpp")) | of_autograd
    assert excluded <= {*above, "Fake", "Python"}  # before 2.13, Python is below Fake
    assert above - excluded - of_autocast == set(only_here(KEPT_KEYS))


# ---- tensors ----

TENSOR_CLASSES = {
    **dict.fromkeys(
        ("SparseTensorImpl", "SparseCsrTensorImpl", "NestedTensorImpl", "QTensorImpl"),
        "components.cpp takes it apart",
    ),
    **dict.fromkeys(
        ("BatchedTensorImpl", "TensorWrapper", "FunctionalTensorWrapper"), "is a wrapper"
    ),
    "UndefinedTensorImpl": "has no bytes",
    **dict.fromkeys(("OpaqueTensorImpl", "LTCTensorImpl", "LlgaTensorImpl"), "is opaque"),
}
# Members of the tensor classes that components.cpp takes apart.
PARTS = {
    "ATen/SparseTensorImpl.h": {"indices_", "values_"},
    "ATen/SparseCsrTensorImpl.h": {"crow_indices_", "col_indices_", "values_"},
    "ATen/NestedTensorImpl.h": {"nested_sizes_", "nested_strides_", "storage_offsets_"},
    "ATen/quantized/QTensorImpl.h": {"quantizer_"},
    "ATen/quantized/Quantizer.h": {"scales_", "zero_points_"},
}


def tensor_classes(files: Iterable[Path]) -> set[str]:
    pattern = re.compile(
        r"^(?:class|struct) [\w ]*?(\w+)(?: final)?\s*: public (?:\w+::)*TensorImpl\b", re.M
    )
    return {name for file in files for name in pattern.findall(file.read_text(encoding="utf-8"))}


def test_every_class_of_tensors_is_reviewed() -> None:
    assert tensor_classes(HEADERS.rglob("*.h")) == set(TENSOR_CLASSES)


def test_every_part_of_a_tensor_is_reviewed() -> None:
    held = r"(?:Tensor|Storage|QuantizerPtr)(?:>)? (\w+_(?:, \w+_)*)(?: = .*)?;"
    found = {
        name: {part for parts in re.findall(held, header(name)) for part in parts.split(", ")}
        for name in PARTS
    }
    assert found == PARTS


# ---- GPUs ----


def test_functions_for_gpus_exist() -> None:
    """A build without CUDA has them only in its stub."""
    named = set(re.findall(r"torch\._C[.,] ?\"?(_cuda_\w+)", source("python/recoup/gpus.py")))
    declared = set(re.findall(r"^def (\w+)\(", STUB.read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert named <= declared
