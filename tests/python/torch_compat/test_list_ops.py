"""Ops on lists: loops are recorded op by op, kernels on lists run in parts. Note [Ops on lists]."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recoup
from recoup import _C
from recoup.bench.flat_options import split
from test_names_in_sources import SCHEMAS

WIDTH = 128
STEPS = 3
HOW = ({"foreach": True}, {"fused": True})

Make = Callable[..., torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "adamw": lambda p, **how: torch.optim.AdamW(p, 1e-3, **how),
    "amsgrad": lambda p, **how: torch.optim.Adam(p, 1e-3, amsgrad=True, maximize=True, **how),
    "tensor lr": lambda p, **how: torch.optim.Adam(p, torch.tensor(1e-3), **how),
    "sgd": lambda p, **how: torch.optim.SGD(p, 0.1, weight_decay=0.1, **how),
    "momentum": lambda p, **how: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, **how),
    "adagrad": lambda p, **how: torch.optim.Adagrad(p, 0.1, **how),
}


def bits(*tensors: Tensor) -> list[bytes]:
    return [each.detach().flatten().clone().view(torch.uint8).numpy().tobytes() for each in tensors]


def of_state(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))


def make_net(dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH, dtype=dtypes[i % len(dtypes)]) for i in range(6)]
    return nn.Sequential(*layers)


def train(
    make: Make,
    how: dict[str, Any],
    *,
    clip: bool = False,
    scaler: torch.amp.GradScaler | None = None,
    unscale: bool = False,
    dtypes: tuple[torch.dtype, ...] = (torch.float32,),
) -> list[bytes]:
    net = make_net(dtypes)
    optimizer = make(net.parameters(), **how)
    chance = torch.Generator().manual_seed(1)
    left = []
    for step in range(STEPS):
        x = torch.randn(8, WIDTH, generator=chance)
        for layer in net:
            x = torch.tanh(layer(x.to(layer.weight.dtype)))
        loss = x.float().square().mean()
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
        else:
            (scaler.scale(loss) * (float("inf") if step == 1 else 1.0)).backward()
            if unscale:
                scaler.unscale_(optimizer)
        if clip:
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.01, foreach=True)
            left += bits(norm, *(p.grad for p in net.parameters()))
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
            left.append(str(scaler.get_scale()).encode())
        left += bits(loss)
    return left + bits(*net.parameters(), *of_state(optimizer))


def peak_of(program: Callable[[], object]) -> int:
    with recoup.budget("1GiB") as run:
        program()
    return run.stats().peak_bytes


def assert_fits(program: Callable[[], list[bytes]], budget: int) -> None:
    plain = program()
    assert peak_of(program) > 2 * budget
    with recoup.budget(budget, spill="1GiB") as run:
        assert program() == plain
    assert run.stats().spills > 0
    with recoup.budget("1GiB", spill="1GiB"):
        assert program() == plain


ONE = 4 * WIDTH * WIDTH  # bytes of a weight


@pytest.mark.parametrize("how", HOW, ids=lambda how: next(iter(how)))
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_least_budget_is_that_of_the_largest_tensor(
    optimizer: str, how: dict[str, Any]
) -> None:
    if optimizer == "tensor lr" and "foreach" in how:
        pytest.skip("PyTorch has no such optimizer")
    assert_fits(lambda: train(OPTIMIZERS[optimizer], how), 6 * ONE)


@pytest.mark.parametrize("how", HOW, ids=lambda how: next(iter(how)))
def test_gradients_are_clipped(how: dict[str, Any]) -> None:
    assert_fits(lambda: train(OPTIMIZERS["adamw"], how, clip=True), 6 * ONE)


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("how", HOW, ids=lambda how: next(iter(how)))
@pytest.mark.parametrize("optimizer", ["adamw", "momentum", "adagrad"])
def test_a_gradient_scaler_that_finds_an_inf(
    optimizer: str, how: dict[str, Any], unscale: bool
) -> None:
    def program() -> list[bytes]:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        left = train(OPTIMIZERS[optimizer], how, scaler=scaler, unscale=unscale)
        assert scaler.get_scale() == 512.0
        return left

    assert_fits(program, 6 * ONE)


@pytest.mark.parametrize("how", HOW, ids=lambda how: next(iter(how)))
def test_mixed_dtypes(how: dict[str, Any]) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.float64)
    assert_fits(lambda: train(OPTIMIZERS["adamw"], how, dtypes=kinds), 12 * ONE)


# ---- single ops ----


def lists(count: int, *names: str) -> dict[str, list[Tensor]]:
    torch.manual_seed(2)
    return {name: [torch.rand(300 + i) for i in range(count)] for name in names}


def adam(of: dict[str, list[Tensor]]) -> None:
    steps = of.get("steps") or [torch.ones(()) for _ in of["p"]]
    torch._fused_adam_(
        of["p"],
        of["g"],
        of["m"],
        of["v"],
        of.get("x", []),
        steps,
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.1,
        eps=1e-8,
        amsgrad="x" in of,
        maximize=False,
        grad_scale=torch.tensor(2.0),
        found_inf=torch.tensor(0.0),
    )


def twice(of: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    return {name: [*each, each[0], each[1]] for name, each in of.items()}


@pytest.mark.parametrize("names", ["pgmv", "pgmvx"])
def test_a_list_may_contain_a_tensor_twice(names: str) -> None:
    def program() -> list[bytes]:
        of = lists(4, *names)
        adam(twice(of))
        torch._foreach_addcdiv_(*(twice(of)[name] for name in "pgv"), 0.1)
        versions = [str(each._version).encode() for part in of.values() for each in part]
        return versions + bits(*(each for part in of.values() for each in part))

    plain = program()
    with recoup.budget("1MiB", options=recoup.Options(evict_after_op=True)):
        assert program() == plain


def test_lists_may_contain_views_of_one_buffer() -> None:
    def program() -> list[bytes]:
        torch.manual_seed(3)
        buffers = [torch.rand(4, 300) for _ in "pgmv"]
        adam({name: list(each.unbind()) for name, each in zip("pgmv", buffers, strict=True)})
        return bits(*buffers)

    plain = program()
    with recoup.budget("1MiB", options=recoup.Options(evict_after_op=True)):
        assert program() == plain


def test_lists_may_contain_non_contiguous_tensors() -> None:
    def program() -> list[bytes]:
        torch.manual_seed(4)
        of = {name: [torch.rand(64, 32) for _ in range(4)] for name in "pmv"}
        of["g"] = [torch.rand(32, 64).T for _ in range(4)]
        adam(of)
        return bits(*(each.contiguous() for part in of.values() for each in part))

    plain = program()
    for budget in ("120KiB", "1MiB"):
        with recoup.budget(budget, spill="64MiB"):
            assert program() == plain


@pytest.mark.parametrize("wrong", ["length", "dtype", "layout"])
def test_a_kernel_that_refuses_its_lists_has_the_effects_of_plain_pytorch(wrong: str) -> None:
    def program() -> list[bytes]:
        of = lists(4, *"pgmv")
        if wrong == "length":
            of["v"].pop()
        else:
            of["p"][2] = of["p"][2].long() if wrong == "dtype" else of["p"][2].to_sparse()
        with pytest.raises(RuntimeError) as error:
            adam(of)
        left = [each.to_dense() for part in of.values() for each in part]
        return [str(error.value).splitlines()[0].encode(), *bits(*left)]

    plain = program()
    with recoup.budget("1MiB"):
        assert program() == plain


def test_empty_lists() -> None:
    with recoup.budget("1MiB"):
        adam(lists(0, *"pgmv"))
        with pytest.raises(RuntimeError, match="at least one tensor"):
            torch._foreach_add([], 1.0)


def test_out_and_functional_variants() -> None:
    def program() -> list[bytes]:
        of = lists(4, *"pgmv", "out")
        torch.ops.aten._foreach_add.List_out(of["p"], of["g"], out=of["out"])
        settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
        flags = {"amsgrad": False, "maximize": False}
        steps = [torch.ones(()) for _ in range(4)]
        made = torch.ops.aten._fused_adam(
            *(of[name] for name in "pgmv"), [], steps, **settings, **flags
        )
        return bits(*of["out"], *(each for part in made for each in part))

    plain = program()
    with recoup.budget("1MiB", options=recoup.Options(evict_after_op=True)):
        assert program() == plain


def test_lists_of_scalars_in_tensors_are_read_by_pointer() -> None:
    def program() -> list[bytes]:
        of = lists(5, *"pgv")
        scalars = torch.rand(5).double() + 1
        torch._foreach_addcdiv_(of["p"], of["g"], of["v"], scalars)
        torch._foreach_mul_(of["p"], torch.tensor(0.5) * 1.5)
        return bits(*of["p"])

    plain = program()
    with recoup.budget("1MiB", options=recoup.Options(evict_after_op=True)):
        assert program() == plain


# ---- out of budget ----


def fused(of: dict[str, list[Tensor]]) -> None:
    adam(of | {"steps": [torch.ones(()) for _ in of["p"]]})


def amp(of: dict[str, list[Tensor]]) -> None:
    found, scale = torch.zeros(1), torch.full((1,), 0.5)
    torch._amp_foreach_non_finite_check_and_unscale_(of["g"], found, scale)


@pytest.mark.parametrize("spill", [None, 256 << 10, 900 << 10, 64 << 20])
@pytest.mark.parametrize("op", [fused, amp])
def test_an_error_leaves_all_lists_unchanged(
    op: Callable[[dict[str, list[Tensor]]], None], spill: int | None
) -> None:
    """In a range of budgets; sizes differ, and the largest tensor is in the middle."""
    sizes = [3000, 9000, 5000, 30000, 2000, 11000, 7000]

    def make() -> dict[str, list[Tensor]]:
        torch.manual_seed(5)
        return {name: [torch.rand(size) for size in sizes] for name in "pgmv"}

    before = bits(*(each for part in make().values() for each in part))
    of = make()
    op(of)
    after = bits(*(each for part in of.values() for each in part))
    seen = set()
    for budget in range(100 << 10, 1300 << 10, 80 << 10):
        run = error = None
        done = False
        try:
            with recoup.budget(budget, spill=spill) as run:
                of = make()
                for each in (*of["p"], *of["m"], *of["v"]):  # non-recomputable, unlike gradients
                    each.add_(torch.zeros(1)).add_(torch.zeros(1))
                for each in of["g"]:
                    recoup.evict(each)
                try:
                    op(of)
                except recoup.OutOfBudgetError as raised:
                    error = raised
                done = True
        except recoup.OutOfBudgetError:
            if run is None or not done:
                continue
            run.resume("64MiB")
        left = bits(*(each for part in of.values() for each in part))
        assert left == (after if error is None else before), budget
        seen.add(error is None)
    assert True in seen and (False in seen or op is amp)


def test_the_error_of_an_op_on_lists_names_the_need_of_a_part() -> None:
    with recoup.budget("200KiB", spill="64MiB"):
        of = {name: [torch.rand(12_000) for _ in range(6)] for name in "pgmvx"}
        with pytest.raises(recoup.OutOfBudgetError) as error:
            adam(of)
        assert "aten::_fused_adam_" in str(error.value)
        assert 240_000 <= error.value.least_bytes < 300_000
        of.clear()


# ---- traces ----


@pytest.mark.parametrize("how", HOW, ids=lambda how: next(iter(how)))
@pytest.mark.parametrize("policy", ["dtr", "planned", "recoup", "lru"])
def test_a_simulation_makes_the_decisions_of_the_live_run(
    how: dict[str, Any], policy: str, tmp_path: Path
) -> None:
    def program() -> None:
        torch.manual_seed(0)
        net = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(64, 64), nn.Tanh())))
        optimizer = torch.optim.AdamW(net.parameters(), 1e-3, **how)
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(torch.randn(512, 64)).square().mean().backward()
            optimizer.step()

    path = tmp_path / "run.rtrace"
    with recoup.budget("1GiB", trace=path):
        program()
    trace = recoup.Trace.read(path)
    budget = trace.unbudgeted_peak_bytes() * 7 // 10
    options: dict[str, Any] = {"policy": policy, "cost_model": "bytes", "planning": "wait"}
    with recoup.budget(budget, profile="decisions", **split(options)) as run:
        program()
    simulation = trace.simulate(
        budget, recoup.SimulationOptions(max_time_ratio=0, **options), decisions=True
    )
    assert simulation.status == "ok"
    assert run.decisions() and simulation.decisions == run.decisions()
    quarter = trace.unbudgeted_peak_bytes() // 4
    options["spill"] = "1GiB"
    with recoup.budget(quarter, profile="decisions", **split(options)) as run:
        program()
    tiered = trace.simulate(
        quarter, recoup.SimulationOptions(max_time_ratio=0, **options), decisions=True
    )
    assert tiered.status == "ok" and tiered.stats.spills > 0
    assert tiered.decisions == run.decisions()
    assert tiered.stats.spilled_bytes == run.stats().spilled_bytes


def test_a_trace_marks_the_begin_and_end_of_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.rtrace"
    with recoup.budget("1GiB", trace=path):
        fused(lists(3, *"pgmv"))
    kinds = [kind for kind, _, _ in recoup.Trace.read(path)._trace.events()]
    at = kinds.index("parts")
    assert kinds[at : at + 5] == ["parts", "op", "op", "op", "parts_end"]
    assert kinds.count("parts") == kinds.count("parts_end") == 1


def test_transposed_weights_need_no_more_memory() -> None:
    """A kernel may make them contiguous first. That is an upper bound, and refuses no budget."""

    def program() -> list[bytes]:
        torch.manual_seed(0)
        weights = [torch.randn(512, 512).t().requires_grad_() for _ in range(4)]
        optimizer = torch.optim.AdamW(weights, fused=True)
        for _ in range(2):
            for weight in weights:
                (weight * weight).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return bits(*weights)

    plain = program()
    with recoup.budget("256MiB") as run:
        assert program() == plain
    with recoup.budget(run.stats().peak_bytes) as run:
        assert program() == plain
    run.check()


# ---- the table ----

# By op in parts: the arguments outside of lists that it reads, and those that it writes.
TABLE = {
    "aten::_fused_adam_": ({"grad_scale", "found_inf"}, set()),
    "aten::_fused_adam_.tensor_lr": ({"lr", "grad_scale", "found_inf"}, set()),
    "aten::_fused_adamw_": ({"grad_scale", "found_inf"}, set()),
    "aten::_fused_adamw_.tensor_lr": ({"lr", "grad_scale", "found_inf"}, set()),
    "aten::_fused_sgd_": ({"grad_scale", "found_inf"}, set()),
    "aten::_fused_sgd_.tensor_lr": ({"lr", "grad_scale", "found_inf"}, set()),
    "aten::_fused_adagrad_": ({"grad_scale", "found_inf"}, set()),
    "aten::_fused_adagrad_.tensor_lr": ({"lr", "grad_scale", "found_inf"}, set()),
    "aten::_amp_foreach_non_finite_check_and_unscale_": ({"inv_scale"}, {"found_inf"}),
}


def kind(argument: Any) -> str:
    return str(argument.type).replace("Optional[Tensor]", "Tensor")


def is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def test_the_table_agrees_with_the_schemas() -> None:
    assert {name for table, name, _ in _C.named_ops() if table == "in parts"} == set(TABLE)
    for name, (read, written) in TABLE.items():
        base, _, overload = name.partition(".")
        schema = SCHEMAS[base, overload]
        shared = [each for each in schema.arguments if kind(each) == "Tensor"]
        assert {each.name for each in shared if not is_written(each)} == read, name
        assert {each.name for each in shared if is_written(each)} == written, name
        cut = [each for each in schema.arguments if kind(each) == "List[Tensor]"]
        assert cut and is_written(cut[0]) and not schema.returns
        others = {kind(each) for each in schema.arguments if each not in (*shared, *cut)}
        assert others <= {"float", "bool"}, name


def test_every_op_that_writes_lists_is_reviewed() -> None:
    """It is in the table, or composite on the CPU: a loop over ops that are recorded one by one."""
    for (base, overload), schema in SCHEMAS.items():
        name = f"{base}.{overload}" if overload else base
        if not any(kind(each) == "List[Tensor]" and is_written(each) for each in schema.arguments):
            continue
        if not base.startswith("aten::") or not torch._C._dispatch_has_kernel(name):
            continue  # TorchScript's own lists have no kernel
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        loop = has(name, "CompositeExplicitAutograd") and not has(name, "CPU")
        assert loop or name in TABLE, f"{name}: read its kernel, see Note [Ops on lists]"
