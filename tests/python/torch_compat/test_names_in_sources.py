"""Names of ops and arguments in recoup's sources, which no compiler checks against PyTorch.

docs/maintainers/new-pytorch.md lists all assumptions; those about headers are in test_headers.py.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed.fsdp

from recoup import _C
from recoup.offline import in_place
from torch_versions import only_here

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "csrc").rglob("*.cpp"))
OP_KINDS = ROOT / "csrc" / "schedule" / "op_kinds.cpp"
TRAITS = ROOT / "csrc" / "torch" / "ops" / "traits.cpp"

SCHEMAS = {(s.name, s.overload_name): s for s in torch._C._jit_get_all_schemas()}
NAMES = {name for name, _ in SCHEMAS}
OVERLOADS = {f"{name}.{overload}" for name, overload in SCHEMAS if overload}
BASES = {name.partition("::")[2] for name in NAMES if name.startswith("aten::")}


def literals(pattern: str, files: list[Path]) -> set[str]:
    return {found for file in files for found in re.findall(pattern, file.read_text())}


# ---- names ----


def test_every_op_in_the_sources_exists() -> None:
    named = literals(r'"(aten::\w[\w.]*)"', SOURCES)
    assert len(named) > 100 and "aten::_lazy_clone" in named
    assert named <= NAMES | OVERLOADS


def test_every_namespace_in_the_sources_exists() -> None:
    named = literals(r'\w\.starts_with\("(\w+)(?:::)?"\)', SOURCES)
    assert {"aten", "c10d", "profiler"} <= named
    # Some namespaces exist once their module is loaded.
    spaces = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}
    assert [name for name in named if not any(space.startswith(name) for space in spaces)] == []


def names_in(declaration: str, file: Path) -> list[str]:
    """The string literals in the definition of a C++ constant."""
    text = file.read_text()
    start = text.index(declaration)
    names = re.findall(r'"(\w+)"', text[start : text.index(";", start)])
    assert names
    return names


def test_every_name_of_a_heavy_op_exists() -> None:
    assert set(names_in("kHeavyNames", OP_KINDS)) <= BASES
    for part in (*names_in("kHeavyParts", OP_KINDS), *names_in("matrix_product =", TRAITS)):
        assert any(part in base for base in BASES), part


# Elementwise ops without the tag, because a mask or a gradient is among their arguments.
WITHOUT_TAG = {
    *"""
    _fused_dropout _masked_scale dropout elu_backward hardsigmoid_backward hardswish
    hardswish_backward hardtanh_backward leaky_relu_backward mish_backward native_dropout
    softplus_backward
    """.split(),
    *only_here(["leaky_relu @ <2.12"]),
}


def test_ops_that_may_write_in_place_exist_and_are_elementwise() -> None:
    tables = (in_place._ELEMENTWISE, in_place._ROWWISE, in_place._SHRINKING)
    assert set().union(*tables) <= BASES
    without = {name for name in in_place._ELEMENTWISE if not any(map(is_pointwise, ops(name)))}
    assert without == WITHOUT_TAG


def ops(name: str) -> Iterator[torch._ops.OpOverload]:
    packet = getattr(torch.ops.aten, name)
    return (getattr(packet, overload) for overload in packet.overloads())


def is_pointwise(op: torch._ops.OpOverload) -> bool:
    return torch.Tag.pointwise in op.tags


# ---- arguments ----

# The positions that traits.cpp uses.
ARGUMENTS = {
    "aten::convolution": {6: "transposed"},
    "aten::native_batch_norm": {3: "running_mean", 4: "running_var", 5: "training"},
    "aten::_native_batch_norm_legit": {3: "running_mean", 4: "running_var", 5: "training"},
    "aten::cudnn_batch_norm": {3: "running_mean", 4: "running_var", 5: "training"},
    "aten::_batch_norm_with_update": {3: "running_mean", 4: "running_var"},
    "aten::batch_norm_update_stats": {1: "running_mean", 2: "running_var"},
    "aten::mkldnn_rnn_layer_backward": {22: "workspace"},
    "aten::_cudnn_rnn": {15: "dropout_state"},
    "aten::_cudnn_rnn_backward": {20: "reserve"},
    "aten::_saturate_weight_to_fp16": {0: "weight"},
    "aten::fbgemm_pack_gemm_matrix_fp16": {0: "input"},
}


def test_arguments_have_their_known_positions() -> None:
    found = {
        op: {at: SCHEMAS[op, ""].arguments[at].name for at in positions}
        for op, positions in ARGUMENTS.items()
    }
    assert found == ARGUMENTS


def test_every_position_in_the_sources_is_known() -> None:
    hidden = {name: set(places) for table, name, places in _C.named_ops() if places}
    text = TRAITS.read_text()
    for op, condition in re.findall(r'\{"(aten::\w+)", bit[^{}]*?, (\d+)\}', text):
        hidden[op].add(int(condition))
    [(op, place)] = re.findall(r'base == "(aten::\w+)"\) \{\s*traits.varies_if = (\d+);', text)
    hidden[op] = {int(place)}
    assert hidden == {op: set(places) for op, places in ARGUMENTS.items()}


# ---- documentation ----

# The ops in the documentation of torch.use_deterministic_algorithms. kUnlessDeterministic and
# kUnlessDeterministicCudnn in traits.cpp list the ops that these call, including backward ops.
NOT_DETERMINISTIC = set(
    """
    nn.Conv1d nn.Conv2d nn.Conv3d nn.ConvTranspose1d nn.ConvTranspose2d nn.ConvTranspose3d
    nn.ReplicationPad1d nn.ReplicationPad2d nn.ReplicationPad3d bmm Tensor.__getitem__
    Tensor.index_put Tensor.put_ Tensor.scatter_add_ gather index_add index_select
    repeat_interleave Tensor.index_copy Tensor.scatter Tensor.scatter_reduce nn.MaxPool3d
    nn.AvgPool3d nn.AdaptiveAvgPool2d nn.AdaptiveAvgPool3d nn.AdaptiveMaxPool2d
    nn.FractionalMaxPool2d nn.FractionalMaxPool3d nn.MaxUnpool1d nn.MaxUnpool2d nn.MaxUnpool3d
    nn.functional.interpolate nn.ReflectionPad1d nn.ReflectionPad2d nn.ReflectionPad3d nn.NLLLoss
    nn.CTCLoss nn.EmbeddingBag histc bincount median nn.functional.grid_sample cumsum
    Tensor.resize_
    """.split()
) | set(
    only_here(
        [
            "nn.Embedding @ >=2.14",
            "nn.MaxPool2d @ >=2.15",
            "kthvalue @ >=2.15",
            "Tensor.index_reduce @ >=2.15",
        ]
    )
)


def test_the_ops_documented_as_nondeterministic_are_reviewed() -> None:
    documentation = torch.use_deterministic_algorithms.__doc__ or ""
    listed = re.findall(r"^ *\* :(?:class|func):`torch\.([\w.]+)`", documentation, re.MULTILINE)
    assert set(listed) == NOT_DETERMINISTIC
