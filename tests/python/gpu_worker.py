"""One check of budgets on a GPU, in a process of its own.

    python gpu_worker.py fakegpu:0 streams 1
    python gpu_worker.py cuda:0 training char_gpt plain

The last words are the check's own arguments. Prints why when there is nothing to check.
"""

import faulthandler
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products that can be repeated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fakegpu
import recoup  # before CUDA starts
from nets import net_named
from recoup.run import free_bytes
from train import Result, assert_bits_equal, train, variant_named

MIB = 1 << 20
KIB = 1 << 10
Check = Callable[..., None]
CHECKS: dict[str, Check] = {}
# The device that is tested, and the extension behind it if it stands for CUDA.
device = torch.device("cpu")
fake: Any = None


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def same(a: Tensor, b: Tensor) -> bool:
    a, b = (x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def synchronize() -> None:
    torch.accelerator.synchronize(device)


def chain(count: int = 24, width: int = 256, seed: int = 0) -> nn.Sequential:
    """More activations than parameters, and dropout."""
    torch.manual_seed(seed)
    layers = [
        nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1)) for _ in range(count)
    ]
    return nn.Sequential(*layers).to(device)


def step(model: nn.Module, rows: int = 512, seed: int = 1) -> list[Tensor]:
    """Loss and gradients of one step."""
    torch.manual_seed(seed)
    x = torch.randn(rows, 256, device=device)
    loss = model(x).square().mean()
    loss.backward()
    gradients = [
        parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad()
    return [loss.detach().cpu(), *gradients]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert same(a, b), f"result {at} differs"


def small_budget(model: nn.Module, share: float = 0.5) -> int:
    """A share of what a step takes in all."""
    with recoup.budget(min(free_bytes(device), 128 * MIB), device=device) as run:
        step(model)
    stats = run.stats()
    return stats.external_bytes + int((stats.peak_bytes - stats.external_bytes) * share)


def with_outside(budget: int) -> int:
    """A budget with so much for what is made in its scope."""
    empty_cache()
    return budget + recoup._C.gpu_memory(device.index or 0)["outside_bytes"]


# ---- whole trainings ----
@check
def training(net: str, variant: str, shares: str = "0.7,0.5,0.4") -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    made_outside = len(variant) % 2 == 1

    def run(budget: int | None = None, **options: Any) -> Result:
        return train(
            net_named(net),
            variant_named(variant),
            2,
            budget,
            device=str(device),
            model_inside=not made_outside,
            **options,
        )

    plain = run()
    try:
        assert_bits_equal(run(), plain)
    except AssertionError as error:
        print(f"two runs without a budget differ: {error}")
        return
    ample = run(min(free_bytes(device), 200 * MIB))
    assert_bits_equal(ample, plain)
    fitted = 0
    for at, share in enumerate(map(float, shares.split(","))):
        for policy in ("recoup", ("dtr-eq", "coop", "lru")[at % 3]):
            outside = ample.stats.external_bytes
            budget = outside + int((ample.stats.peak_bytes - outside) * share)
            try:
                result = run(budget, policy=policy, verify=at == 1)
            except recoup.OutOfBudgetError:
                continue
            fitted += 1
            assert_bits_equal(result, plain)
            assert result.stats.peak_bytes <= budget
            assert result.stats.evictions > 0
    assert fitted > 0, "no budget was enough"


# ---- random numbers ----
@check
def random_numbers() -> None:
    def program() -> list[Tensor]:
        torch.manual_seed(3)
        generator = torch.Generator(device=device).manual_seed(5)
        made = [torch.randn(64 * KIB, device=device) for _ in range(4)]
        made += [torch.rand(64 * KIB, device=device, generator=generator) for _ in range(4)]
        made += [F.dropout(x, 0.3) for x in made]
        made += [torch.empty_like(x).normal_() for x in made[:2]]
        made += [torch.randperm(1000, device=device), torch.bernoulli(made[4].sigmoid())]
        if torch.accelerator.current_accelerator() is not None and recoup._C.active():
            for x in made:
                recoup.evict(x)
        # Where the generators are now, and everything from where they were.
        after = [torch.randn(10, device=device), torch.rand(10, device=device, generator=generator)]
        return [x.cpu() for x in made + after]

    plain = program()
    with recoup.budget(64 * MIB, device=device, small_leaf_bytes=0) as run:
        ours = program()
    assert run.stats().replays >= 8, run.stats().replays
    assert_same(ours, plain)


# ---- streams ----
@check
def streams(seed: str = "0") -> None:
    """Work on three streams that the program orders by events, in too little memory."""

    def program() -> list[Tensor]:
        order = torch.Generator().manual_seed(int(seed))
        lanes = [torch.Stream(device=device) for _ in range(3)]
        made: list[tuple[Tensor, Any]] = []
        torch.manual_seed(0)
        first = torch.randn(64 * KIB, device=device)
        ready = torch.accelerator.current_stream(device).record_event()
        made.append((first, ready))
        for _ in range(80):
            lane = lanes[int(torch.randint(3, (), generator=order))]
            picks = torch.randint(len(made), (2,), generator=order).tolist()
            with lane:
                for pick in picks:
                    lane.wait_event(made[pick][1])
                    made[pick][0].record_stream(lane)
                a, b = (made[pick][0] for pick in picks)
                c = torch.sin(a) * 0.5 + b
                if int(torch.randint(4, (), generator=order)) == 0:
                    c.mul_(0.99)
                made.append((c, lane.record_event()))
            if len(made) > 24:
                del made[int(torch.randint(1, 20, (), generator=order))]
        here = torch.accelerator.current_stream(device)
        for _, event in made:
            here.wait_event(event)
        return [made.pop()[0].cpu() for _ in range(len(made))]

    plain = program()
    for budget in (64 * MIB, 6 * MIB, 4 * MIB):
        with recoup.budget(with_outside(budget), device=device) as run:
            ours = program()
            run.check()
        assert_same(ours, plain)
    assert run.stats().replays > 0


@check
def one_stream_pays_no_event() -> None:
    model = chain()
    budget = small_budget(model)
    if fake is None:
        print("events are counted on the test device only")
        return
    before = fake.waits()
    with recoup.budget(budget, device=device) as run:
        step(model)
    assert run.stats().replays > 0
    assert fake.waits() == before


@check
def the_host_waits_for_nothing_more() -> None:
    """Neither evicting, nor replaying, nor moving makes the host wait for the device."""
    model = chain(12)
    budget = small_budget(model)

    def waits(scope: Any) -> tuple[int, int]:
        with scope as run:
            step(model)  # whatever is done once
            before = synchronizations()
            for seed in range(3):
                torch.manual_seed(seed)
                model(torch.randn(512, 256, device=device)).square().mean().backward()
                model.zero_grad()
            return synchronizations() - before, 0 if run is None else run.stats().replays

    from contextlib import nullcontext

    plain, _ = waits(nullcontext())
    ours, replays = waits(recoup.budget(budget, device=device))
    assert replays > 0
    assert ours == plain, f"{ours} against {plain}"


def synchronizations() -> int:
    if fake is not None:
        return int(fake.synchronizations())
    torch.cuda.set_sync_debug_mode("error")
    return 0


# ---- other devices ----
@check
def budgets_on_several_devices() -> None:
    """On the CPU and on one GPU or two, at once."""
    count = torch.accelerator.device_count()
    others = [torch.device(device.type, index) for index in range(min(count, 2))]

    def program() -> list[Tensor]:
        torch.manual_seed(0)
        made = []
        for on in (torch.device("cpu"), *others):
            x = torch.randn(64 * KIB, device=on)
            chain_ = [x]
            for _ in range(40):
                chain_.append(torch.sin(chain_[-1]) * 1.01)
            made += chain_[::8]
            del chain_[:]
        # From one device to another and back, and an op of both.
        x = made[0]
        for on in (*others, torch.device("cpu")):
            x = x.to(on) + 1
            made.append(x)
        made.append(others[0].type and made[-1].to(others[0]) * torch.tensor(1.5))
        return [m.cpu() for m in made]

    plain = program()
    from contextlib import ExitStack

    with ExitStack() as stack:
        runs = [
            stack.enter_context(recoup.budget(8 * MIB, device=on))
            for on in (torch.device("cpu"), *others)
        ]
        ours = program()
        for run in runs:
            run.check()
    assert_same(ours, plain)
    for run in runs:
        assert run.stats().evictions > 0, run.device
        assert run.stats().peak_bytes <= 8 * MIB


@check
def the_other_device_is_left_alone() -> None:
    with recoup.budget(8 * MIB, device=device) as run:
        x = [torch.randn(MIB) for _ in range(20)]  # 80 MiB of the CPU's
        y = sum(x)
    assert run.stats().op_count == 0
    with recoup.budget(8 * MIB, device="cpu") as run:
        z = torch.ones(4 * MIB, device=device)
        z = z.sin().cos()
    assert run.stats().peak_bytes < MIB
    assert float(z[0].cpu()) == float(torch.ones(()).sin().cos())
    assert y.shape == (MIB,)


@check
def an_op_with_a_scalar_of_the_cpu_is_replayed() -> None:
    with recoup.budget(16 * MIB, device=device) as run:
        x = torch.arange(256 * KIB, device=device, dtype=torch.float32)
        scale = torch.tensor(3.0)
        y = x * scale
        z = torch.where(x > 5, x, scale)
        scale.fill_(7.0)  # too late for y and z
        assert recoup.evict(y)
        assert recoup.evict(z)
        want = torch.arange(256 * KIB, dtype=torch.float32)
        assert same(y, want * 3)
        assert same(z, torch.where(want > 5, want, torch.tensor(3.0)))
    assert run.stats().replays >= 2


@check
def a_device_without_an_index_is_the_current_one() -> None:
    with recoup.budget(64 * MIB, device=device) as run:
        made = [torch.full((MIB,), float(i), device=device.type) for i in range(12)]
        assert all(recoup.evict(x) for x in made)
        assert float(made[7].sum().cpu()) == 7 * MIB
    assert run.stats().evictions >= 12


@check
def costs_are_learned() -> None:
    if fake is None:
        print("events are counted on the test device only")
        return
    before = fake.events()
    with recoup.budget(64 * MIB, device=device) as run:
        x = torch.ones(64 * KIB, device=device)
        for i in range(1000):
            y = x + i
            if i % 50 == 0:
                synchronize()
        assert fake.events() < before + 300, fake.events() - before
        # The test device takes a microsecond for each thing that it does, and no more.
        assert 1000 * 1000 <= run.stats().op_ns <= 1100 * 2500, run.stats().op_ns
    assert y is not None


@check
def cudnn_is_on_or_off_as_it_was() -> None:
    with recoup.budget(64 * MIB, device=device) as run:
        x = torch.randn(4, 8, 32, 32, device=device)
        w = torch.randn(8, 8, 3, 3, device=device)
        with torch.backends.cudnn.flags(enabled=False, deterministic=True):
            y = F.conv2d(x, w)
            want = y.cpu()
        assert recoup.evict(y)
        torch.backends.cudnn.enabled = True
        assert same(y, want)
        assert torch.backends.cudnn.enabled
    assert run.stats().replays == 1


@check
def autocast_within_an_op() -> None:
    """Of an op that autocast does not know, what the op itself calls is cast."""
    with recoup.budget(64 * MIB, device=device) as run:
        torch.manual_seed(0)
        model = nn.Bilinear(64, 64, 64).to(device)
        x = torch.rand(64, 64, device=device)
        with torch.autocast(device.type, torch.bfloat16):
            y = model(x, x)
        want = y.detach().cpu()
        assert recoup.evict(y)
        assert same(y, want)
    assert run.stats().replays > 0


@check
def what_an_exit_brought_back_is_there_on_any_stream() -> None:
    for _ in range(10):
        other = torch.Stream(device=device)
        with recoup.budget(with_outside(4 * MIB), device=device, small_leaf_bytes=0):
            with other:
                x = torch.full((64 * KIB,), 1.0, device=device)
                keep = [x * (i + 2) for i in range(14)]
                keep += [x[: 16 * KIB] * (i + 16) for i in range(3)]
            for y in keep[:6]:
                recoup.evict(y)
        with other:
            copies = [y.clone() for y in keep]
        synchronize()
        for i, y in enumerate(copies):
            assert bool((y.cpu() == i + 2).all()), i
        del copies, keep, x, y


@check
def memory_of_others_is_left_alone() -> None:
    x = torch.ones(64 * KIB, device=device)
    storage = torch._C._construct_storage_from_data_pointer(x.data_ptr() + KIB, device, 4 * KIB)
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
    y = torch.tensor([], dtype=torch.float32, device=device).set_(typed)
    y.record_stream(torch.Stream(device=device))
    with recoup.budget(64 * MIB, device=device):
        y.record_stream(torch.Stream(device=device))
        assert float((y * 2).sum().cpu()) == 2 * KIB


# ---- what a user may do to a tensor ----
@check
def pins_escapes_and_wishes() -> None:
    with recoup.budget(16 * MIB, device=device) as run:
        x = torch.randn(256 * KIB, device=device)
        y = x.sin()
        want = y.cpu()
        assert recoup.is_resident(y) and recoup.evict(y) and not recoup.is_resident(y)
        recoup.materialize(y)
        assert recoup.is_resident(y)
        with recoup.pin(y):
            assert not recoup.evict(y)
        assert recoup.evict(y)
        address = y.data_ptr()  # an escape: it comes back, and stays there
        assert recoup.is_resident(y) and not recoup.evict(y)
        assert y.data_ptr() == address
        assert same(y, want)
        run.check()
    assert run.stats().escapes == 1


@check
def a_hook_of_backward_may_ask_for_a_tensor() -> None:
    """Backward of a GPU runs on a thread of autograd's; it is as much of the scope as ours."""
    seen = []
    with recoup.budget(32 * MIB, device=device):
        x = torch.randn(256 * KIB, device=device, requires_grad=True)
        y = x.sin()
        other = x.detach().cos()
        want = other.cpu()

        def hook(gradient: Tensor) -> None:
            assert recoup.evict(other)
            recoup.materialize(other)
            assert recoup.evict(other)
            seen.append(other.data_ptr() != 0 and same(other, want))

        y.register_hook(hook)
        y.sum().backward()
    assert seen == [True]


@check
def tensors_outlive_the_scope() -> None:
    before = used_bytes()
    with recoup.budget(32 * MIB, device=device):
        x = torch.randn(256 * KIB, device=device)
        y = [x.sin() * i for i in range(40)]
        keep = [y[3], y[20]]
        del y
    want = [x.cpu().sin() * 3, x.cpu().sin() * 20]
    assert_close = torch.testing.assert_close
    for a, b in zip(keep, want, strict=True):
        assert_close(a.cpu(), b)
    # They are inputs of the next scope, as what was made outside.
    with recoup.budget(16 * MIB, device=device) as run:
        z = [keep[0] * i + x for i in range(30)]
        keep += z[::7]
        run.check()
        del z
    assert run.stats().evictions > 0
    assert same(keep[-1], keep[0].cpu() * 28 + x.cpu())
    del keep, x, a
    gc.collect()
    empty_cache()
    assert used_bytes() <= before, f"{used_bytes()} against {before}"


@check
def frees_on_other_threads() -> None:
    made: list[Tensor] = []
    with recoup.budget(64 * MIB, device=device) as run:
        x = torch.randn(64 * KIB, device=device)
        stop = threading.Event()

        def free() -> None:
            while not stop.is_set() or made:
                with suppress(IndexError):
                    made.pop()

        threads = [threading.Thread(target=free) for _ in range(2)]
        for thread in threads:
            thread.start()
        for i in range(400):
            made.append(x * i)
        stop.set()
        for thread in threads:
            thread.join()
        run.check()
    assert same(x.sin(), x.cpu().to(device).sin())


def empty_cache() -> None:
    (torch.cuda if fake is None else fake).empty_cache()


def used_bytes() -> int:
    """Of the device, as its driver has it."""
    if fake is not None:
        return int(fake.allocated_bytes(device.index))
    free, total = torch.cuda.mem_get_info(device)
    return total - free


@check
def the_driver_gives_no_more_than_the_budget() -> None:
    made_before = torch.ones(3 * MIB, device=device)
    gc.collect()
    empty_cache()
    synchronize()
    # What CUDA takes for itself, and other processes.
    before = used_bytes() - recoup._C.gpu_memory(device.index or 0)["outside_bytes"]
    budget = 48 * MIB
    most = 0
    with recoup.budget(budget, device=device) as run:
        torch.manual_seed(0)
        made = [torch.randn(256 * KIB, device=device)]
        for _ in range(60):
            made.append(made[-1].sin() + made_before[: 256 * KIB])
            most = max(most, used_bytes())
        del made[:-1]
    assert run.stats().evictions > 0
    assert most <= before + budget, f"{most - before} of {budget}"


@check
def memory_is_counted() -> None:
    """What torch.cuda.memory_allocated and the like say."""

    def counts() -> tuple[int, int, int]:
        stats = recoup.gpus.memory_stats(device.index)
        used = stats["allocated_bytes"]["all"]
        return used["current"], used["peak"], stats["reserved_bytes"]["all"]["current"]

    gc.collect()
    empty_cache()
    before, _, reserved = counts()
    x = torch.ones(MIB, device=device)
    assert counts()[0] == before + 4 * MIB
    del x
    now, peak, _ = counts()
    assert (now, peak) == (before, before + 4 * MIB)
    recoup._C.reset_gpu_peaks(device.index)
    assert counts()[1] == before
    with recoup.budget(32 * MIB, device=device):
        held = counts()[0] - before  # what moves go through
        y = torch.ones(MIB, device=device)
        assert counts()[0] == before + held + 4 * MIB
        assert reserved < counts()[2] <= max(32 * MIB, reserved)
    assert counts()[0] == before + 4 * MIB
    del y
    assert counts()[0] == before


# ---- what is refused ----
def message(kind: type[BaseException], function: Callable[[], Any]) -> str:
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


@check
def refusals() -> None:
    def enter(**options: Any) -> None:
        with recoup.budget(**{"budget": 16 * MIB, "device": device, **options}):
            pass

    count = torch.accelerator.device_count()
    text = message(ValueError, lambda: enter(device=f"{device.type}:{count}"))
    assert f"there are {count}" in text, text
    text = message(ValueError, lambda: enter(budget="100TiB"))
    assert "at most the memory of its device" in text, text
    text = message(ValueError, lambda: enter(budget=1))
    assert "must be at least" in text, text
    assert "device must be" in message(TypeError, lambda: enter(device=1.5))
    message(ValueError, lambda: enter(device="nothing"))
    with recoup.budget(16 * MIB, device=device):
        text = message(RuntimeError, enter)
        assert f"already in force on {device}" in text, text
    if fake is not None:
        memory = fake.take_away(device.index, free_bytes(device) // 2)
        text = message(RuntimeError, lambda: enter(budget=free_bytes(device) + 8 * MIB))
        assert "Take a smaller budget" in text, text
        fake.give_back(device.index, memory)
    hog = torch.empty(24 * MIB, dtype=torch.uint8, device=device)
    text = message(ValueError, enter)
    assert "what was there before the scope takes" in text, text
    del hog
    empty_cache()
    enter()  # nothing is left of those


@check
def out_of_budget() -> None:
    def program() -> None:
        x = [torch.randn(MIB, device=device) for _ in range(3)]
        with recoup.pin(x[0]), recoup.pin(x[1]), recoup.pin(x[2]):
            torch.cat(x * 2)

    budget = with_outside(24 * MIB)
    with recoup.budget(budget, device=device) as run:
        try:
            program()
        except torch.OutOfMemoryError as error:
            assert isinstance(error, recoup.OutOfBudgetError)
            assert error.op == "aten::cat" and error.asked_bytes == 24 * MIB, error
            assert error.budget_bytes == budget
        else:
            raise AssertionError("it fitted")
        run.check()
        y = torch.ones(MIB, device=device).sin()  # the program goes on
        assert same(y, torch.ones(MIB).sin()) or fake is None
    # Outside of a scope the text is another.
    text = message(
        torch.OutOfMemoryError,
        lambda: torch.empty(free_bytes(device) * 2, dtype=torch.uint8, device=device),
    )
    assert "that were asked for" in text, text


@check
def an_exit_that_does_not_fit() -> None:
    budget = recoup.budget(16 * MIB, device=device)
    run = budget.__enter__()
    x = torch.randn(256 * KIB, device=device)
    y = [x.sin() * i for i in range(30)]
    want = (x.cpu().sin() * 29, x.sin().cpu() * 29)
    text = message(recoup.OutOfBudgetError, lambda: budget.__exit__(None, None, None))
    assert "at the end of the scope" in text, text
    run.finish(64 * MIB)
    assert same(y[-1], want[1])
    message(RuntimeError, lambda: run.finish(128 * MIB))


@check
def a_capture_is_refused() -> None:
    stream = torch.Stream(device=device)
    with recoup.budget(16 * MIB, device=device) as run:
        x = torch.randn(64 * KIB, device=device)
        if fake is not None:
            with stream:
                fake.begin_capture(stream)
                text = message(RuntimeError, x.sin_)
                fake.end_capture(stream)
        else:
            text = capture_on_cuda(x)
        assert "CUDA graph" in text, text
        run.check()
        x.sin_()


def capture_on_cuda(x: Tensor) -> str:
    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sin_()

    # PyTorch leaves the stream of a capture that could not begin as the current one.
    with torch.cuda.stream(torch.cuda.current_stream()):
        return message(RuntimeError, capture)


@check
def traces_are_recorded() -> None:
    import tempfile

    model = chain(6)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.rtrace")
        with recoup.trace(path, device=device):
            step(model)
        trace = recoup.Trace.read(path)
        peak = trace.unbudgeted_peak_bytes()
        assert trace.simulate(int(peak * 0.8)).stats.replays > 0


# ---- CUDA only ----
@check
def fused_attention() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def program(backend: SDPBackend) -> list[Tensor]:
        torch.manual_seed(0)
        q, k, v = (
            torch.randn(2, 4, 512, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        with sdpa_kernel(backend):
            x = q
            for _ in range(8):
                x = F.scaled_dot_product_attention(x, k, v, dropout_p=0.1, is_causal=True)
        x.float().square().sum().backward()
        return [x.cpu(), v.grad.cpu()]  # type: ignore[union-attr]

    torch.use_deterministic_algorithms(True, warn_only=True)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        plain = program(backend)
        if not all(same(a, b) for a, b in zip(program(backend), plain, strict=True)):
            print(f"two runs without a budget differ: {backend}")
            continue
        with recoup.budget(with_outside(12 * MIB), device=device) as run:
            ours = program(backend)
        assert run.stats().replays > 0
        assert_same(ours, plain)


@check
def tf32() -> None:
    """The switch as it was when an op ran is the one that its replay has."""
    for at_first in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = at_first
        with recoup.budget(64 * MIB, device=device) as run:
            torch.manual_seed(0)
            x = torch.randn(512, 512, device=device)
            y = x @ x
            want = y.cpu()
            torch.backends.cuda.matmul.allow_tf32 = not at_first
            assert recoup.evict(y)
            assert same(y, want)
        assert run.stats().replays == 1


@check
def graphs_outside_of_budgets() -> None:
    """Two that share a pool, replayed before, in and after a budget that wants all memory."""
    x = torch.zeros(64 * KIB, device=device)
    chain_of_ops(x)  # loads the kernels
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    results: list[Tensor] = []
    for graph in graphs:
        with torch.cuda.graph(graph, pool=graphs[0].pool() if results else None):
            results.append(chain_of_ops(x))

    def replay(value: float) -> None:
        x.fill_(value)
        for graph, result in zip(graphs, results, strict=True):
            graph.replay()
            assert same(result, chain_of_ops(x))

    replay(1)
    torch.cuda.empty_cache()
    others = [torch.full((64 * KIB,), 3.0, device=device) for _ in range(50)]
    replay(2)
    assert all(bool((other == 3).all()) for other in others)
    with recoup.budget(with_outside(16 * MIB), device=device):
        kept = torch.full((64 * KIB,), 4.0, device=device).sin()
        graphs[0].replay()
    replay(5)
    assert same(kept, torch.full((64 * KIB,), 4.0, device=device).sin())
    del graph, graphs[:]
    torch.cuda.empty_cache()
    assert all(bool(result.isfinite().all()) for result in results)


def chain_of_ops(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x.sin() + 1
    return x


CUDA_ONLY = ("fused_attention", "tf32", "graphs_outside_of_budgets")


def main() -> None:
    global device, fake
    faulthandler.dump_traceback_later(280, exit=True)
    where, name, *arguments = sys.argv[1:]
    if where.startswith(fakegpu.NAME):
        fake = fakegpu.install(seed=int(os.environ.get("RECOUP_TEST_SEED", "1")))
    device = torch.device(where)
    function = CHECKS[name]
    inspect.signature(function).bind(*arguments)
    function(*arguments)


if __name__ == "__main__":
    main()
