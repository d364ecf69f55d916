"""Ops that can write their first output over an input, by name.

A trace has the storages that an op reads and makes, but not the order in which its kernel accesses
them. So this list decides; an op that is not in it never runs in place.
"""

from typing import Literal

# Kernels that read an element of each input before they write that element of the output.
_ELEMENTWISE = frozenset(
    """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not
    bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min copysign cos cosh div dropout elu
    eq erf erfc exp exp2 expm1 floor fmod ge gelu gt hardsigmoid hardswish hardtanh le leaky_relu
    lerp log log10 log1p log2 logical_and logical_not logical_or logit lt masked_fill maximum
    minimum mish mul native_dropout ne neg pow reciprocal relu relu6 remainder round rsqrt rsub
    sigmoid sign silu sin sinh softplus sqrt square sub tan tanh threshold trunc where xlogy
    _fused_dropout _masked_scale
    elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward
    leaky_relu_backward mish_backward native_dropout_backward sigmoid_backward silu_backward
    softplus_backward tanh_backward threshold_backward
    """.split()
)
# Kernels that read a whole row or channel of the first input before they write it.
_ROWWISE = frozenset(
    """
    batch_norm cudnn_batch_norm layer_norm log_softmax native_batch_norm native_layer_norm softmax
    _log_softmax _log_softmax_backward_data _safe_softmax _softmax _softmax_backward_data
    native_batch_norm_backward cudnn_batch_norm_backward
    """.split()
)
# Kernels that make fewer elements than they read, in order: none overwrites an unread element.
_SHRINKING = frozenset(
    """
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices
    """.split()
)

Place = Literal["any input of its size", "first input of its size", "first input"]


def base_name(op: str) -> str:
    """`relu` for `aten::relu`, `add` for `aten::add.Tensor`."""
    return op.rpartition("::")[2].partition(".")[0]


def place_of_output(op: str) -> Place | None:
    """Inputs that the op's first output may overwrite; None: no input."""
    name = base_name(op)
    if name in _ELEMENTWISE:
        return "any input of its size"
    if name in _ROWWISE:
        return "first input of its size"
    return "first input" if name in _SHRINKING else None
