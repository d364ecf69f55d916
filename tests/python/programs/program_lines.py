"""The kinds of lines in random programs."""

import functools
from collections.abc import Callable

import torch

from program_writer import ONCE, Generator, Kind


def of_floats(lines: Callable[[Generator, str], str]) -> Kind:
    """A kind of line that needs a tensor of floats."""

    @functools.wraps(lines)
    def kind(g: Generator) -> str | None:
        x = g.floating()
        return None if x is None else lines(g, x)

    return kind


def shape(g: Generator) -> str:
    return str(g.choice(["16, 32", "32, 16", "16, 16", "32, 32", "8, 64", "512", "4, 8, 16"]))


def factory(g: Generator) -> str:
    s = shape(g)
    makers = [
        f"torch.zeros({s})",
        f"torch.ones({s})",
        f"torch.full(({s},), {g.number()})",
        "torch.arange(512.0).reshape(16, 32)",
        "torch.eye(32)",
        "torch.linspace(-1, 1, 512)",
        f"torch.empty({s}).fill_({g.number()})",
        "torch.tensor([[0.5 * i] * 32 for i in range(16)])",
        "torch.tril(torch.ones(32, 32))",
    ]
    return g.assign(makers)


def random_factory(g: Generator) -> str:
    s = shape(g)
    makers = [
        f"torch.randn({s})",
        f"torch.rand({s})",
        f"torch.randn({s}, requires_grad=True)",
        f"torch.randint(0, 8, ({s},))",
        f"torch.randn({s}, generator=gen)",
        f"torch.randn({s}, dtype=torch.float64)",
        f"torch.randn({s}, dtype=torch.complex64)",
        "torch.randperm(512)",
    ]
    return f"{g.new()} = {g.choice(makers)}{ONCE}"


def view(g: Generator) -> str | None:
    x = g.any()
    y = g.any(lambda t: t.dim() == 2 and min(t.shape) >= 4)
    if x is None or y is None:
        return None
    views = [
        f"{x}.reshape(-1)",
        f"{x}.view(-1)",
        f"{x}.detach()",
        f"{x}.unsqueeze(0).expand(3, *{x}.shape)",
        f"{x}[1:]",
        f"{x}[..., ::2]",
        f"{x}.squeeze()",
        f"{x}.view_as({x})",
        f"{y}.t()",
        f"{y}[1:3]",
        f"{y}[:, 1:]",
        f"{y}[2]",
        f"{y}.diagonal()",
        f"{y}.chunk(2)[1]",
        f"{y}.as_strided((4, 4), (1, 2))",
        f"{y}.unfold(0, 4, 2)",
        f"{y}.transpose(0, 1)",
        f"{y}.split(2, dim=1)[0]",
        f"{y}.movedim(0, 1).unsqueeze(1)",
        f"{y}.conj()",
        x,
        x,
    ]
    return g.assign(views)


def two_views(g: Generator) -> str | None:
    x = g.any(lambda t: t.dim() == 2 and t.shape[0] % 2 == 0)
    return None if x is None else f"{g.new()}, {g.new()} = {x}.chunk(2)"


@of_floats
def unary(g: Generator, x: str) -> str:
    calls = [
        f"{x}.relu()",
        f"{x}.tanh()",
        f"{x}.sigmoid()",
        f"{x}.clamp(-1, 1)",
        f"{x}.softmax(-1)",
        f"{x}.log_softmax(0)",
        f"{x}.cumsum(0)",
        f"{x}.sort(-1).values",
        f"{x}.sort(0)[1]",
        f"{x}.sum(0)",
        f"{x}.mean(-1, keepdim=True)",
        f"{x}.abs().sqrt()",
        f"{x} * {g.number()}",
        f"{x} + {g.number()}",
        f"1 / (1 + {x} * {x})",
        f"F.gelu({x})",
        f"F.layer_norm({x}, {x}.shape[-1:])",
        f"{x}.to(torch.bfloat16)",
        f"{x}.double()",
        f"{x}.to(torch.int32)",
        f"{x}.clone()",
        f"{x}.contiguous()",
        f"{x}.flip(0)",
        f"{x}.roll(1, 0)",
        f"{x}.topk(2)[0]",
        f"{x}.argsort()",
        f"{x}.max(-1)[0]",
        f"{x} > 0",
        f"{x}[{x} > 0]",
        f"torch.nonzero({x} > 0)",
        f"{x}.masked_select({x} < 0.5)",
        f"torch.unique({x}.round())",
        f"{x}.new_zeros(16, 16)",
        f"torch.ones_like({x})",
        f"{x}.std(0)",
        f"torch.func.vmap(torch.sin)({x})",
        f"torch.func.grad(lambda a: (a.sin() ** 2).sum())({x}.detach())",
        f"torch.fft.rfft({x})",
        f"F.pad({x}, (1, 1))",
    ]
    return g.assign(calls)


def other_dtype(g: Generator) -> str | None:
    x = g.any(lambda t: t.dtype != torch.float32)
    if x is None:
        return None
    calls = [
        f"{x}.float()",
        f"{x} + 1",
        f"{x} * 2",
        f"{x}.sum(0)",
        f"{x}.clone()",
        f"{x}.to(torch.float32) / 2",
    ]
    return g.assign(calls)


@of_floats
def several_results(g: Generator, x: str) -> str:
    calls = [f"{x}.sort(-1)", f"{x}.max(0)", f"torch.frexp({x})", f"torch.std_mean({x}, 0)"]
    return f"{g.new()}, {g.new()} = {g.choice(calls)}"


@of_floats
def binary(g: Generator, x: str) -> str:
    y = g.like(x)
    calls = [
        f"{x} + {y}",
        f"{x} - {y}",
        f"{x} * {y}",
        f"torch.maximum({x}, {y})",
        f"torch.where({x} > 0, {x}, {y})",
        f"torch.cat([{x}, {y}])",
        f"torch.stack([{x}, {y}])",
        f"torch.lerp({x}, {y}, 0.3)",
        f"torch.addcmul({x}, {y}, {y}, value=0.1)",
        f"torch._foreach_mul([{x}, {y}], 0.5)[1]",
        f"torch.func.jvp(torch.tanh, ({x}.detach(),), ({y}.detach(),))[1]",
    ]
    return g.assign(calls)


def matrix(g: Generator) -> str | None:
    x = g.floating(dim=2)
    if x is None:
        return None
    columns = g.env[x].shape[1]
    y = g.any(lambda t: t.dim() == 2 and t.shape[0] == columns and t.dtype == torch.float32)
    calls = [
        f"{x} @ {x}.t()",
        f"F.linear({x}, {x})",
        f"{x}.unsqueeze(0) @ {x}.t()",
        f"F.conv2d({x}[None, None], torch.ones(2, 1, 3, 3), padding=1)[0, 1]",
        f"F.max_pool2d({x}[None], 2)[0]",
        f"F.avg_pool2d({x}[None], 2)[0]",
        f"{x}.gather(1, torch.arange({x}.shape[0])[:, None] % {x}.shape[1])",
        f"{x}[torch.tensor([1, 0, 1])]",
        f"{x}.index_select(0, torch.tensor([0, 2, 1]))",
        f"F.scaled_dot_product_attention(*[{x}[None, None]] * 3)[0, 0]",
        f"torch.linalg.qr({x})[0]",
    ]
    if y is not None:
        calls += [f"{x} @ {y}"] * 4
        calls += [f"torch.addmm({x} @ {y}, {x}, {y})"]
    call = g.choice(calls)
    if g.random.random() < 0.1:
        return f"with torch.autocast('cpu', torch.bfloat16): {g.new()} = {call}"
    return f"{g.new()} = {call}"


@of_floats
def in_place(g: Generator, x: str) -> str:
    y = g.like(x)
    calls = [
        f"{x}.add_({y})",
        f"{x}.add_({g.number()})",
        f"{x}.mul_(0.5)",
        f"{x}.mul_({y})",
        f"{x}.copy_({y})",
        f"{x}.zero_()",
        f"{x}.fill_({g.number()})",
        f"{x}.clamp_(-1, 1)",
        f"{x}.relu_()",
        f"{x}.tanh_()",
        f"{x}.sub_({x}.mean())",
        f"{x}.masked_fill_({x} > 1, 0.5)",
        f"{x}.addcmul_({y}, {y}, value=0.1)",
        f"{x}[1:].mul_(2)",
        f"{x}[..., ::2].add_(1)",
        f"{x}[0] = {g.number()}",
        f"{x}[{x} > 0] = 0.25",
        f"{x}.index_put_((torch.tensor([0, 1]),), torch.tensor(0.5))",
        f"{x}.index_add_(0, torch.tensor([0, 0]), {x}[:2].clone())",
        f"{x}.index_fill_(0, torch.tensor([1]), 2)",
        f"{x}.unsqueeze(0).sub_(0.1)",
        f"{x}.cumsum_(0)",
        f"torch.add({x}, 1, out={y})",
        f"torch.mul({x}, {y}, out={x})",
        f"torch._foreach_add_([{x}, {y}], 0.5)",
        f"F.relu({x}, inplace=True)",
        f"F.threshold_({x}, 0.1, 0.0)",
    ]
    # With a gradient, plain PyTorch crashes when a view of such a view gets a hook.
    if not g.env[x].requires_grad:
        calls += [f"{x}.swapaxes_(0, -1)", f"{x}.unsqueeze_(0)", f"{x}.squeeze_()"]
        calls += [f"{x}.t_()"] if g.env[x].dim() == 2 else []
    if g.env[x].dim() == 2:
        calls += [
            f"{x}.t().add_(1)",
            f"{x}.diagonal().zero_()",
            f"{x}.transpose(0, 1)[0].fill_(3)",
            f"{x}[:, 1] = {x}[:, 0]",
            f"{x}.fill_diagonal_(1)",
            f"{x}.scatter_(1, torch.zeros({x}.shape[0], 1, dtype=torch.long), 2.0)",
            f"{x}.addmm_({x}.clone(), torch.eye({x}.shape[1]))",
        ]
    call = g.choice(calls)
    if g.env[x].requires_grad or g.random.random() < 0.2:
        return f"with torch.no_grad(): {call}"
    return str(call)


@of_floats
def into_out(g: Generator, x: str) -> str:
    return f"{g.new()} = torch.sin({x}.detach(), out=torch.zeros(0))"


@of_floats
def chance(g: Generator, x: str) -> str:
    lines = [
        f"{g.new()} = F.dropout({x}, 0.3)",
        f"{g.new()} = torch.randn_like({x})",
        f"{g.new()} = torch.bernoulli({x}.sigmoid())",
        f"{g.new()} = F.rrelu({x}, training=True)",
        f"{g.new()} = torch.multinomial({x}.detach().abs().reshape(-1)[:64] + 0.1, 32)",
        f"with torch.no_grad(): {x}.normal_()",
        f"with torch.no_grad(): {x}.uniform_(-1, 1)",
        f"with torch.no_grad(): {x}.bernoulli_(0.4)",
        f"with torch.no_grad(): {x}.add_(torch.randn_like({x}))",
        f"{x}.normal_(generator=gen)",
        f"F.dropout({x}, 0.2, inplace=True)",
        f"torch.manual_seed({g.random.randrange(1000)})",
        "gen.manual_seed(5)",
    ]
    return str(g.choice(lines)) + ONCE


@of_floats
def error(g: Generator, x: str) -> str:
    lines = [
        f"{g.new()} = {x} @ torch.ones(7, 3, 5)",
        f"{x}.view(13, -1)",
        f"{x}.add_(torch.ones(5, 7))",
        f"{g.new()} = {x}.index_select(0, torch.tensor([9999]))",
        f"{x}.detach().index_fill_(0, torch.tensor([0, 9999]), 1)",
        f"{g.new()} = torch.linalg.cholesky(-torch.eye(16))",
        "raise ValueError('mine')",
        "missing + 1",
        f"{g.new()} = torch.cat([{x}, torch.ones(3, 3, 3, 3)])",
        f"{x}.copy_(torch.ones(3, 1, 5, 9))",
        f"{g.new()} = {x}.to('nowhere')",
        f"torch._foreach_add_([{x}], [torch.ones(5, 7)])",
    ]
    return str(g.choice(lines))


def wants_gradient(t: torch.Tensor) -> bool:
    return t.requires_grad and t.dtype == torch.float32


def autograd(g: Generator) -> str | None:
    leaf = g.any(lambda t: t.is_leaf and t.dtype == torch.float32)
    x = g.any(wants_gradient)
    p = g.any(lambda t: t.is_leaf and t.grad is not None)
    lines = [f"{leaf}.requires_grad_()"] * 2 if leaf else []
    if x is not None:
        keep = g.choice(["", "retain_graph=True"])
        lines += [
            f"({x} * {x}).tanh().sum().backward({keep}){ONCE}",
            f"{x}.sum().backward({keep}){ONCE}",
            f"({x}.softmax(-1) * {g.like(x)}.detach()).mean().backward({keep}){ONCE}",
            f"{g.new()} = torch.autograd.grad(({x} ** 3).sum(), {x})[0]{ONCE}",
            f"{g.new()} = torch.autograd.grad(({x} ** 3).sum(), {x}, create_graph=True)[0]{ONCE}",
            f"{x}.detach_()",
        ]
        # Plain PyTorch crashes for some views that were written under no_grad.
        lines += [] if g.env[x]._is_view() else [f"{x}.register_hook(lambda grad: grad * 2)"]
    if p is not None:
        lines += [
            f"with torch.no_grad(): {p}.sub_({p}.grad, alpha=0.1)",
            f"{p}.grad = None",
            f"{p}.grad.zero_()",
            f"{g.new()} = {p}.grad",
            f"torch.nn.utils.clip_grad_norm_([{p}], 0.5)",
        ]
    return str(g.choice(lines)) if lines else None


def has_room(t: torch.Tensor) -> bool:
    """Whether the storage has 32 elements: elements that a resize adds have no defined value."""
    end = t.storage_offset() + 32
    return t.dtype == torch.float32 and t.untyped_storage().nbytes() >= end * t.itemsize


def rebind(g: Generator) -> str | None:
    x = g.any(has_room)
    y = g.any(has_room)
    if x is None:
        return None
    lines = [
        f"{x}.data = {y}.detach()",
        f"{x}.data = {y}.detach().clone()",
        f"{x}.detach().set_({y}.detach())",
        f"{x}.detach().set_({y}.detach().untyped_storage(), 0, (4, 8), (8, 1))",
        f"{x}.resize_(4, 8)",
        f"{x}.detach().resize_(2, 3)",
        f"torch.utils.swap_tensors({x}, {y})",
        f"{g.new()} = torch._lazy_clone({x})",
    ]
    return str(g.choice(lines))


def outside(g: Generator) -> str | None:
    x = g.any(lambda t: t.dtype in (torch.float32, torch.float64, torch.int64))
    if x is None:
        return None
    lines = [
        f"arr = {x}.detach().numpy()",
        f"arr = np.asarray({x}.detach())",
        "arr += 1",
        "arr[..., 0] = 5",
        "arr *= 0.5",
        "arr = None",
        f"{g.new()} = torch.from_numpy(arr)",
        f"{g.new()} = torch.from_dlpack({x}.detach())",
        f"number = float({x}.detach().double().sum())",
        f"number = {x}.tolist()",
        f"number = str({x}.detach())",
        f"{g.new()} = copy.deepcopy({x}.detach())",
        f"{g.new()} = pickle.loads(pickle.dumps({x}.detach()))",
        f"{g.new()} = saved_and_loaded({x}.detach())",
        f"number = {x}.data_ptr() % 64 if {x}.storage_offset() == 0 else 0",
    ]
    return str(g.choice(lines))


def evict(g: Generator) -> str | None:
    x = g.any()
    return None if x is None else f"evict({x})"


def keep(g: Generator) -> str | None:
    x = g.any()
    return None if x is None else g.choice([f"materialize({x})", f"pin({x})", "unpin()", "unpin()"])


# The kinds by their relative frequency.
KINDS: dict[int, list[Kind]] = {
    2: [two_views, several_results, error, into_out, other_dtype],
    3: [rebind, outside, keep],
    6: [factory, random_factory, matrix, chance],
    9: [binary, autograd],
    12: [view, in_place, evict],
    16: [unary],
}
