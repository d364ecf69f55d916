"""Messages of a program in a budget: memory that is not there, exits, evicted tensors."""

from message_cases.case import Case, programs

OUT_OF_BUDGET = programs("""
with recoup.budget("1MiB"):
    kept = torch.arange(1024.0).mul(2)
    torch.ones(1 << 20)
---
with recoup.budget("1MiB", profile="modules", options=recoup.Options(cost_model="bytes")):
    layers = [each for _ in range(8) for each in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    x = torch.nn.Sequential(*layers)(torch.ones(64, 64))
    x.repeat(256, 1)
---
x = torch.ones(1 << 19)
with recoup.budget("1MiB"):
    x.add(1)
---
with recoup.budget("1MiB"):
    x = torch.ones(1 << 16)
    x.data_ptr()
    kept = [x * i for i in range(4)]
---
with recoup.budget("1MiB", options=recoup.Options(small_result_bytes=0)):
    held = [torch.ones(1 << 14).add_(i) for i in range(14)]
    pins = [recoup.pin(each) for each in held[1::2]]
    [each.__enter__() for each in pins]
    del held[::2]
    torch.ones(1 << 16)
---
with recoup.budget("1MiB", options=recoup.Options(block_size="64KiB")):
    torch.ones(1 << 16)
---
with recoup.budget("8MiB", spill="1MiB", spill_dir="."):
    made = [torch.randn(1 << 18) for _ in range(7)]
    for each in made:
        each.sum()
        each.add_(torch.ones(1)).add_(torch.ones(1))
    more = [torch.randn(1 << 18) for _ in range(3)]
    for each in more:
        each.sum()
        each.add_(torch.ones(1))
---
os.environ["RECOUP_TEST_AIDS"] = "fail-spill=1,persistent"
with recoup.budget("8MiB", spill="64MiB", spill_dir="."):
    made = [changed(i) for i in range(9)]
---
x = torch.ones(1 << 10)
with recoup.budget("1MiB") as run:
    x.add(1)
    run.set_budget(1024)
---
with recoup.budget("1MiB") as run:
    run.set_budget("1B")
---
with recoup.budget("1MiB") as run:
    run._engine.count_pages()
---
with recoup.budget("4MiB", options=recoup.Options(max_replay_ratio=1e-9, small_result_bytes=0)):
    value = torch.ones(1 << 16).exp().log().exp().log()
    recoup.evict(value)
    value.sum()
---
os.environ["RECOUP_TEST_AIDS"] = "fail-allocation=5"
with recoup.budget("64MiB"):
    made = [torch.ones(1 << 10) for _ in range(12)]
""") + programs("""
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
with recoup.budget("1MiB"):
    torch.ones(1 << 20)
""", only="rank") + programs("""
machine_with("160MiB")
x = torch.ones(1 << 22)
with recoup.budget("1%"):
    pass
---
with recoup.budget("64MiB", options=recoup.Options(max_slowdown=15)):
    value = torch.ones(900, 900) @ torch.ones(900, 900)
    while recoup.evict(value):
        value.sum()
""", masked=True)  # fmt: skip

LEAVING = programs("""
base = torch.arange(float(1 << 18))
with recoup.budget("8MiB"):
    made = [base.mul(i) for i in range(12)]
---
base = torch.arange(float(1 << 18))
with recoup.budget("8MiB"):
    made = [base.mul(i) for i in range(12)]
    raise ValueError("of the program")
---
run, made = suspended()
run.resume("9MiB")
---
os.environ["RECOUP_TEST_AIDS"] = "fail-fetch=1,persistent"
with recoup.budget("4MiB", spill="64MiB", spill_dir=".") as run:
    made = [changed(i) for i in range(8)]
    run.set_budget("64MiB")
---
os.environ["RECOUP_TEST_AIDS"] = "fail-replay=1,persistent"
with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
    value = halves()
    recoup.evict(value)
""")

EVICTED = programs("""
with recoup.budget("64MiB"):
    value = halves()
    recoup.evict(value)
    on_a_thread(lambda: value.sum())
---
run, made = suspended()
[each.sum() for each in made]
---
run, made = suspended()
del run
gc.collect()
[each.sum() for each in made]
---
with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
    source = torch.ones(4096)
    product = source * 2
    recoup.evict(product)
    on_a_thread(lambda: source.data_ptr())
---
with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
    source = torch.ones(4096)
    product = source * 2
    recoup.evict(product)
    on_a_thread(lambda: source.add_(1))
---
source = torch.ones(1 << 18)
run, made = suspended(source)
source.add_(1)
---
source = torch.ones(1 << 18)
run, made = suspended(source)
with recoup.budget("4MiB"):
    source.add(1)
---
source = torch.linspace(1, 2, 4096)
storage = source.untyped_storage()
resize = torch.UntypedStorage.resize_
with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
    product = source * 2
    recoup.evict(product)
    resize(storage, 8 * 4096)
    product.sum()
---
source = torch.linspace(1, 2, 4096)
storage = source.untyped_storage()
resize = torch.UntypedStorage.resize_
with recoup.budget("64MiB", options=recoup.Options(small_result_bytes=0)):
    product = source * 2
    recoup.evict(product)
    resize(storage, 8 * 4096)
    source.add(1)
---
library = torch.library.Library("gone", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
recoup.allow_replay("gone::twice")
with recoup.budget("8MiB", options=recoup.Options(small_result_bytes=0)):
    value = torch.ops.gone.twice(torch.ones(1000))
    recoup.evict(value)
    library._destroy()
    value.sum()
---
library = torch.library.Library("other", "FRAGMENT")
library.define("bits(Tensor x) -> Tensor")
library.impl("bits", lambda x: x + int.from_bytes(os.urandom(2), "big"), "CPU")
recoup.allow_replay("other::bits")
with recoup.budget("8MiB", check_replays=True, options=recoup.Options(small_result_bytes=0)):
    value = torch.ops.other.bits(torch.ones(1000))
    recoup.evict(value)
    value.sum()
""")

MISUSE = programs("""
import threading
entered, leave = threading.Event(), threading.Event()
def work():
    with recoup.budget("1MiB"):
        entered.set()
        leave.wait()
threading.Thread(target=work).start()
entered.wait()
try:
    recoup.budget("1MiB").__enter__()
finally:
    leave.set()
---
recoup.budget("1MiB").__exit__(None, None, None)
---
with recoup.budget("1MiB"):
    with recoup.budget("1MiB"):
        pass
---
scope = recoup.budget("1MiB")
with scope:
    with scope:
        pass
---
scope = recoup.budget("1MiB")
scope.__enter__()
on_a_thread(lambda: scope.__exit__(None, None, None))
---
with recoup.budget("1MiB") as run:
    run.resume("2MiB")
---
with recoup.budget("1MiB") as run:
    run._engine.set_budget(0)
---
run, made = suspended()
run.resume("1KiB")
---
with recoup.budget("1MiB") as run:
    pass
run.set_budget("2MiB")
---
with recoup.budget("1MiB") as run:
    pass
run.resume("2MiB")
---
run, made = suspended()
run.set_budget("1MiB")
---
with recoup.budget("1MiB") as run:
    run.holders()
---
with recoup.budget("1MiB") as run:
    run.timeline()
---
@recoup.budget("1MiB")
async def train():
    pass
---
engine = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cpu")
engine.leave()
---
engine = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cpu")
engine.enter()
engine.leave()
engine.enter()
---
engine = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cpu")
engine.enter()
engine.record("a.rtrace")
---
engine = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cpu")
engine.enter()
engine.log_decisions()
---
engine = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cpu")
engine.enter()
engine.attribute(False, False, False)
---
engine = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cpu")
recoup._C.offer(engine, [torch.ones(3), torch.ones(3)], [True, True])
""")

TIER = programs(
    """
with recoup.budget("1MiB", spill="1MiB", spill_dir="/dev/shm"):
    pass
---
with recoup.budget("1MiB", spill="1MiB", spill_dir="not-there"):
    pass
---
with recoup.budget("8MiB", spill="64MiB", spill_dir="."):
    made = [changed(i) for i in range(12)]
    corrupt_tier()
    first_evicted(made).sum()
---
with recoup.budget("8MiB", spill="64MiB", spill_dir="."):
    made = [changed(i) for i in range(12)]
    empty_tier()
    first_evicted(made).sum()
---
with recoup.budget("8MiB", spill="64MiB", spill_dir="."):
    made = [changed(i) for i in range(12)]
    in_a_fork(lambda: first_evicted(made).sum())
---
os.environ["RECOUP_TEST_AIDS"] = "fail-fetch=1"
with recoup.budget("8MiB", spill="64MiB", spill_dir=".") as run:
    made = [changed(i) for i in range(12)]
    first_evicted(made).sum()
""",
    notes=False,
    masked=True,
)

SECTIONS: dict[str, list[Case]] = {
    "Out of budget": OUT_OF_BUDGET,
    "Leaving a scope": LEAVING,
    "Misuse of a run": MISUSE,
    "Evicted tensors that cannot be restored": EVICTED,
    "The spill tier": TIER,
}
