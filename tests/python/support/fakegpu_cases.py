"""Ops that the test device must compute as the CPU does: inputs, and a function of them."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Case = tuple[tuple[Any, ...], Callable[..., Any]]


def _seed(index: int) -> torch.Generator:
    return torch.Generator().manual_seed(index)


def floats(*shape: int) -> Tensor:
    """Normal numbers. The shape is the seed, so that tensors of one case differ."""
    return torch.randn(*shape, generator=_seed(sum(n * 7**i for i, n in enumerate(shape))))


def positive(*shape: int) -> Tensor:
    return floats(*shape).abs() + 0.5


def integers(below: int, *shape: int) -> Tensor:
    return torch.randint(below, shape, generator=_seed(below))


def in_place(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a.mul_(b).add_(1.5).clamp_(min=-1)
    a[0].zero_()
    return a


def with_out(a: Tensor, b: Tensor) -> Tensor:
    """`out=` with a tensor of the right size, and with one that must grow."""
    fits, grows = a.new_empty(a.shape), a.new_empty(0)
    with torch.no_grad():
        torch.add(a, b, out=fits)
        torch.mul(a, b, out=grows)
    return fits + grows + a


def views(a: Tensor) -> tuple[Tensor, ...]:
    halves = a.chunk(2, 1)
    folded = a.unfold(0, 2, 1)
    part = a.as_strided((2, 2), (1, 2), 3)
    return (a.t().reshape(-1), halves[1] * 2, folded + 1, part, a.select(0, 1), a.diagonal())


def mixed_devices(a: Tensor) -> Tensor:
    """A CPU tensor without dimensions, and indices on the CPU."""
    return a * torch.tensor(2.5) + a[torch.tensor([1, 0, 1])].sum()


def recurrent(kind: type[torch.nn.Module]) -> Callable[..., tuple[Tensor, ...]]:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        net = kind(5, 7, num_layers=2).to(x.device)
        out, hidden = net(x)
        hidden = hidden if isinstance(hidden, tuple) else (hidden,)
        gradients = torch.autograd.grad(
            out.square().sum(), list(net.parameters()), retain_graph=True
        )
        return (out, *hidden, *gradients)

    return run


def foreach(a: Tensor, b: Tensor) -> list[Tensor]:
    with torch.no_grad():
        sums = torch._foreach_add([a, b], [b, a], alpha=2)
        torch._foreach_mul_(sums, 0.5)
        torch._foreach_addcdiv_(sums, [a, b], [a.abs() + 1, b.abs() + 1], 0.1)
        norms = torch._foreach_norm(sums)
    return [*sums, *norms]


def conjugates(a: Tensor) -> Tensor:
    z = torch.complex(a, a.sin())
    return torch.view_as_real(z.conj() * z + z.conj()).sum(-1) + z.conj().imag


def resized(a: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        b = a.clone()
        b.resize_(2, 2)
        c = torch.empty(0, device=a.device).set_(a.clone().untyped_storage(), 2, (3,), (2,))
        d = a.clone()
        d.untyped_storage().resize_(8 * a.numel())
        return b, c, d


def convolution(**options: Any) -> Callable[..., Tensor]:
    return lambda x, w, b: F.conv2d(x, w, b, **options)


CASES: dict[str, Case] = {
    "arithmetic": ((floats(4, 5), floats(4, 1)), lambda a, b: (a + b) * a / (b.abs() + 1) - 2**a),
    "unary": ((positive(3, 7),), lambda a: a.log() + a.sqrt().exp().sin() + a.rsqrt() + a.erf()),
    "in_place": ((floats(4, 5), floats(5)), in_place),
    "with_out": ((floats(4, 5), floats(4, 1)), with_out),
    "views": ((floats(4, 6),), views),
    "mixed_devices": ((floats(3, 4),), mixed_devices),
    "comparison": ((floats(4, 5), floats(1, 5)), lambda a, b: torch.where(a > b, a, b * 2)),
    "masks": ((floats(4, 5),), lambda a: (a.masked_fill(a > 0, 0.5), a[a > 0], a.nonzero())),
    "dtypes": ((floats(4, 5),), lambda a: (a.double() * 2, a.half() + 1, (a * 9).int(), a.bool())),
    "bfloat16": ((floats(4, 5),), lambda a: (a.bfloat16() @ a.bfloat16().t()).float()),
    "complex": ((floats(4, 5),), conjugates),
    "matmul": ((floats(4, 5), floats(5, 3)), torch.matmul),
    "bmm": ((floats(2, 4, 5), floats(2, 5, 3)), torch.bmm),
    "addmm": ((floats(3), floats(4, 5), floats(5, 3)), torch.addmm),
    "linear": ((floats(2, 3, 5), floats(4, 5), floats(4)), F.linear),
    "einsum": ((floats(2, 3, 4), floats(2, 4, 5)), lambda a, b: torch.einsum("bij,bjk->ik", a, b)),
    "sum": ((floats(3, 4, 5),), lambda a: (a.sum(), a.sum(1), a.mean((0, 2)), a.prod(1))),
    "statistics": ((floats(3, 4, 5),), lambda a: (a.var(1), a.std(), a.norm(), a.logsumexp(2))),
    "extremes": ((floats(3, 4, 5),), lambda a: (a.max(), *a.min(1), a.amax(2), a.argmax(1))),
    "cumulative": ((floats(3, 4),), lambda a: (a.cumsum(1), a.cumprod(0), *a.cummax(1))),
    "sort": ((floats(3, 9),), lambda a: (*a.sort(1), a.argsort(0), *a.median(1))),
    "topk": ((floats(3, 9),), lambda a: (*a.topk(4), *a.kthvalue(2))),
    "unique": ((integers(5, 30),), lambda a: torch.unique(a, return_counts=True)),
    "histogram": ((floats(30), integers(6, 30)), lambda a, b: (a.histc(5), b.bincount())),
    "cat": ((floats(3, 4), floats(2, 4)), lambda a, b: (torch.cat([a, b]), torch.hstack([a.t()]))),
    "stack": ((floats(3, 4), floats(1, 4)), lambda a, b: torch.stack([a, b.expand(3, 4)], 1)),
    "split": ((floats(6, 4),), lambda a: (*a.split([1, 5]), *a.unbind(1), *torch.chunk(a, 2))),
    "pad": ((floats(2, 3, 4),), lambda a: (F.pad(a, (1, 2)), F.pad(a, (2, 1), mode="reflect"))),
    "roll": ((floats(3, 4),), lambda a: (a.roll(1, 1), a.flip(0), a.tril(), a.repeat(2, 2))),
    "gather": ((floats(4, 5), integers(4, 4, 5)), lambda a, i: a.gather(0, i)),
    "scatter": (
        (floats(4, 5), integers(4, 4, 5), floats(5, 4)),
        lambda a, i, b: (a.scatter(0, i, 2.0), a.scatter_add(0, i, b.t())),
    ),
    "index": ((floats(4, 5), integers(4, 6)), lambda a, i: (a[i], a[:, i], a[i, i])),
    "index_put": (
        (floats(4, 5), integers(4, 3), floats(3, 5)),
        lambda a, i, b: a.index_put((i,), b, accumulate=True),
    ),
    "index_select": (
        (floats(4, 5), integers(4, 3), floats(3, 5)),
        lambda a, i, b: (a.index_select(0, i), a.index_add(0, i, b), a.take(i)),
    ),
    "embedding": (
        (floats(10, 4), integers(10, 3, 6)),
        lambda w, i: F.embedding(i, w, padding_idx=2),
    ),
    "embedding_bag": (
        (floats(10, 4), integers(10, 3, 6)),
        lambda w, i: F.embedding_bag(i, w, mode="mean"),
    ),
    "one_hot": ((integers(5, 4),), lambda i: F.one_hot(i, 5)),
    "activations": (
        (floats(4, 5),),
        lambda a: F.gelu(a) + F.silu(a) + F.leaky_relu(a) + F.elu(a) + F.softplus(a) + a.tanh(),
    ),
    "relu": ((floats(4, 5),), lambda a: F.relu(a.clone(), inplace=True) + F.hardtanh(a)),
    "softmax": ((floats(4, 5),), lambda a: (a.softmax(1), a.log_softmax(0), F.glu(a[:, :4]))),
    "cross_entropy": (
        (floats(6, 5), integers(5, 6)),
        lambda a, t: F.cross_entropy(a, t, label_smoothing=0.1),
    ),
    "nll_loss": (
        (floats(2, 5, 3, 3), integers(5, 2, 3, 3)),
        lambda a, t: F.nll_loss(a.log_softmax(1), t, ignore_index=1),
    ),
    "losses": (
        (floats(4, 5), floats(1, 5)),
        lambda a, b: (
            F.mse_loss(a, b.expand(4, 5))
            + F.smooth_l1_loss(a, b.expand(4, 5))
            + F.binary_cross_entropy_with_logits(a, b.expand(4, 5).sigmoid())
            + F.kl_div(a.log_softmax(1), b.expand(4, 5).softmax(1), reduction="sum")
        ),
    ),
    "ctc_loss": (
        (floats(9, 2, 5), integers(4, 2, 3)),
        lambda a, t: F.ctc_loss(
            a.log_softmax(2), t + 1, torch.tensor([9, 8]), torch.tensor([3, 2])
        ),
    ),
    "conv1d": ((floats(2, 3, 9), floats(4, 3, 3), floats(4)), F.conv1d),
    "conv2d": ((floats(2, 3, 8, 8), floats(4, 3, 3, 3), floats(4)), convolution(padding=1)),
    "conv2d_groups": (
        (floats(2, 4, 8, 8), floats(4, 2, 3, 3), floats(4)),
        convolution(groups=2, stride=2, dilation=2),
    ),
    "conv2d_no_bias": (
        (floats(2, 3, 8, 8), floats(4, 3, 3, 3)),
        lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w),
    ),
    "conv_transpose2d": (
        (floats(2, 3, 5, 5), floats(3, 4, 3, 3), floats(4)),
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, output_padding=1),
    ),
    "conv3d": ((floats(1, 2, 4, 5, 5), floats(3, 2, 2, 2, 2), floats(3)), F.conv3d),
    "max_pool2d": ((floats(2, 3, 8, 8),), lambda x: F.max_pool2d(x, 2, return_indices=True)),
    "avg_pool2d": (
        (floats(2, 3, 8, 8),),
        lambda x: (F.avg_pool2d(x, 3, 2), F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, 2)),
    ),
    "interpolate": (
        (floats(2, 3, 4, 4),),
        lambda x: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, size=7, mode="bilinear", align_corners=False),
        ),
    ),
    "grid_sample": (
        (floats(1, 2, 5, 5), floats(1, 4, 4, 2).tanh()),
        lambda x, g: F.grid_sample(x, g, align_corners=False),
    ),
    "unfold": ((floats(1, 2, 6, 6),), lambda x: F.fold(F.unfold(x, 3), (6, 6), 3)),
    "batch_norm": (
        (floats(4, 3, 5, 5), torch.zeros(3), torch.ones(3), floats(3), floats(3) * 2),
        lambda x, m, v, w, b: (
            F.batch_norm(x, (m := m.detach().clone()), (v := v.detach().clone()), w, b, True),
            m,
            v,
        ),
    ),
    "batch_norm_eval": (
        (floats(4, 3, 5, 5), torch.zeros(3), torch.ones(3)),
        lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()),
    ),
    "layer_norm": (
        (floats(4, 6), floats(6), floats(6) * 2),
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
    ),
    "group_norm": ((floats(2, 4, 5, 5), floats(4)), lambda x, w: F.group_norm(x, 2, w)),
    "rms_norm": ((floats(4, 6), floats(6)), lambda x, w: F.rms_norm(x, (6,), w)),
    "instance_norm": ((floats(2, 3, 5, 5),), F.instance_norm),
    "attention": (
        (floats(2, 2, 5, 4), floats(2, 2, 5, 4) * 2, floats(2, 2, 5, 4) * 3),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "lstm": ((floats(4, 2, 5),), recurrent(torch.nn.LSTM)),
    "gru": ((floats(4, 2, 5),), recurrent(torch.nn.GRU)),
    "rnn": ((floats(4, 2, 5),), recurrent(torch.nn.RNN)),
    "foreach": ((floats(4, 5), floats(5) * torch.ones(4, 1)), foreach),
    "fft": ((floats(4, 8),), lambda a: torch.fft.irfft(torch.fft.rfft(a) * 2)),
    "linalg": (
        (floats(4, 4) + 4 * torch.eye(4), floats(4, 2)),
        lambda a, b: (torch.linalg.solve(a, b), torch.linalg.inv(a), torch.linalg.det(a)),
    ),
    "cholesky": ((floats(4, 4),), lambda a: torch.linalg.cholesky(a @ a.t() + torch.eye(4).to(a))),
    "cdist": ((floats(4, 3), floats(5, 3)), torch.cdist),
    "factories": (
        (floats(3, 3),),
        lambda a: (
            torch.arange(5, device=a.device),
            torch.linspace(0, 1, 7, device=a.device),
            torch.eye(3, device=a.device),
            torch.full((2, 2), 3.0, device=a.device),
            torch.tril_indices(3, 3, device=a.device),
            torch.ones_like(a),
            a.new_zeros(2),
            torch.hann_window(5, device=a.device),
        ),
    ),
    "resized": ((floats(3, 4),), lambda a: resized(a)[:2]),
    "clone": (
        (floats(3, 4),),
        lambda a: (a.clone(), a.t().contiguous(), a.t().clone(), a.detach()),
    ),
    "checkpoint": (
        (floats(3, 4),),
        lambda a: torch.utils.checkpoint.checkpoint(
            lambda b: b.sin().exp(), a, use_reentrant=False
        ),
    ),
}
