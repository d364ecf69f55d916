"""Messages about arguments in Python, about GPUs, and warnings."""

from message_cases.case import Case, calls, programs

ARGUMENTS = calls("""
recoup.budget()
recoup.budget(0)
recoup.budget("0MB")
recoup.budget(True)
recoup.budget(1.5)
recoup.budget([1])
recoup.budget("4 parsecs")
recoup.budget("lots")
recoup.budget("1.5")
recoup.budget("5000000TiB")
recoup.budget("1000TiB")
recoup.budget("160%")
recoup.budget("1MiB", spill=0)
recoup.budget("1MiB", spill_dir="")
recoup.budget("1MiB", options=recoup.Options(block_size="1 block"))
recoup.budget("1MiB", options=recoup.Options(page_window="1MiB"))
recoup.budget("1MiB", policy="mru")
recoup.budget("1MiB", policy="oracle")
recoup.budget("1MiB", polcy="lru")
recoup.budget("1MiB", wait=True)
recoup.budget("1MiB", seed=3)
recoup.budget("1MiB", policy="lru", options=recoup.Options(kinetic=True))
recoup.budget("1MiB", policy=3)
recoup.budget("1MiB", options=recoup.Options(sampling=3))
recoup.budget("1MiB", options=recoup.Options(usefulness=None))
recoup.budget("1MiB", options=recoup.Options(seed=-1))
recoup.budget("1MiB", options=recoup.Options(seed=None))
recoup.budget("1MiB", options=recoup.Options(max_depth=0))
recoup.budget("1MiB", options=recoup.Options(replay_order="any"))
recoup.budget("1MiB", options=recoup.Options(cost_model="guess"))
recoup.budget("1MiB", options=recoup.Options(planning="later"))
recoup.budget("1MiB", options=recoup.Options(in_place="move"))
recoup.budget("1MiB", options=recoup.Options(placement="worst-fit"))
recoup.budget("1MiB", options=recoup.Options(max_replay_ratio=-1.0))
recoup.budget("1MiB", options=recoup.Options(max_replay_ratio=None))
recoup.budget("1MiB", options=recoup.Options(max_slowdown=-1.0))
recoup.budget("1MiB", options=recoup.Options(move_ns_per_byte=0.0))
recoup.budget("1MiB", options=3)
recoup.budget("1MiB", options=recoup.SimulationOptions())
recoup.budget("1MiB", rules={"keep": ["wte"]})
recoup.budget("1MiB", rules=recoup.Rules(spill_only=["wte"]))
recoup.Rules(keep="wte")
recoup.Rules(keep=[1])
recoup.Rules(spill_only=[""])
recoup.budget("1MiB", profile="all")
recoup.budget("1MiB", trace="a.rtrace", profile="decisions")
recoup.budget("1MiB", share=1)
recoup.budget("1MiB", share="nodes")
recoup.budget("60%", share="node")
recoup.budget("1MiB", share="node", adapt=True)
recoup.budget("1MiB", trace=b"\\xff.rtrace")
recoup.trace("no/such/folder.rtrace").__enter__()
recoup.allow_replay("op")
recoup.verify("train.py", "other.py")
recoup.verify(print, print, steps=0)
recoup.verify(print, print)
recoup.evict(3)
recoup.pin("x").__enter__()
recoup.evictt
recoup.integrations.Keras
recoup._C.Options(fast=True)
recoup._C.replay_traits("aten::nothing", "")
recoup._C.Options(oracle=(9.0, 1.0, 1.0, 1.0))
recoup._C.Options(spill_read_ns_per_byte=0.0)
recoup._C.Options(spill_write_ns_per_byte=0.0)
recoup._C.Options(spill_request_ns=-1.0)
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20, policy="oracle"), "cpu")
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20, policy="lru", kinetic=True), "cpu")
""") + programs("""
os.environ["RECOUP_TEST_AIDS"] = "poisson"
with recoup.budget("1MiB"):
    pass
---
os.environ["RECOUP_BUDGET"] = "much"
recoup.budget()
---
Path("pyproject.toml").write_text("tool.recoup = {bugdet = '4GiB'}")
recoup.budget()
---
Path("pyproject.toml").write_text("tool.recoup = {budget = 4.5}")
recoup.budget()
---
Path("pyproject.toml").write_text("tool.recoup = '4GiB'")
recoup.budget()
---
Path("pyproject.toml").write_text("[tool.recoup")
recoup.budget()
---
recoup.verify(lambda: recoup.verify(print, print), print)
---
cgroup_with(1 << 20)
recoup.budget("2MiB")
---
cgroup_with("lots")
print(*recoup._memory.machine.look().problems)
---
recoup.torch_version._source = lambda: ("/sources/recoup", True)
recoup.torch_version.require("9.9.0")
---
recoup.torch_version._source = lambda: (None, False)
recoup.torch_version.require("9.9.0")
---
with recoup.budget("1MiB", rules=recoup.Rules(keep=["liner", "Linear"])):
    torch.nn.Linear(2, 2)(torch.ones(1, 2))
---
with recoup.budget("1MiB", rules=recoup.Rules(keep=["Linear"])):
    kept = torch.nn.Linear(64, 256)(torch.ones(512, 64))
    torch.ones(1 << 18)
---
rules = recoup.Rules(spill_only=["Other"])
with recoup.budget("4MiB", spill="8MiB", spill_dir=".", rules=rules):
    layer = torch.nn.Linear(512, 512)
    layer.weight = torch.nn.Parameter(changed(0).view(512, 512))
    kept = layer(torch.ones(1, 512))
    torch.ones(1 << 20)
""") + programs("""
machine_with("100MiB")
with recoup.budget("200MiB", adapt=True) as run:
    pass
print(run.report().splitlines()[2])
---
with recoup.budget("64MiB", share=f"group:{os.getpid()}") as run:
    pass
print(run.report().splitlines()[2])
---
with recoup.budget("64MiB", share=f"group:{os.getpid()}") as run:
    run.set_budget("32MiB")
---
first = recoup.budget("64MiB", share=f"group:{os.getpid()}")
with first:
    recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20)).share(
        recoup._memory.share_group.file_of(f"group:{os.getpid()}"), 1 << 20
    )
---
with recoup.budget("1MiB", share=f"group:{os.getpid()}") as run:
    torch.zeros(1 << 20)
---
with recoup.budget("1MiB", share=f"group:{os.getpid()}") as run:
    run._adjuster.stop()
    run._adjuster._total = None
    run._adjuster.look_safely()
---
with recoup.budget("1MiB", share=f"group:{os.getpid()}") as run:
    run._adjuster.stop()
    run._adjuster._workers._engine = None
    run._adjuster._workers.look_safely()
---
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20)).give(1)
---
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20)).share("here", 1 << 30)
---
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20)).share("here", 0)
---
Path("here").write_bytes(b"garbage!" * 4000)
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20)).share("here", 1 << 20)
---
budget = recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20))
budget.enter()
budget.share("here", 1 << 20)
---
budgets = []
for _ in range(257):
    budgets.append(recoup._C.Engine(recoup._C.Options(budget_bytes=32 << 20)))
    budgets[-1].share("here", 32 << 20)
    budgets[-1].give(1 << 16)
---
first, second = [recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20)) for _ in range(2)]
first.share("here", 1 << 16)
first.publish_share(1 << 16, 1 << 12)
second.share("here", 1 << 16)
---
machine_with("1B")
with recoup.budget("auto"):
    pass
---
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
with recoup.budget("1MiB"):
    pass
""", masked=True)  # fmt: skip

ON_A_GPU = 'recoup.budget("1MiB", device="cuda")'
GPUS = (
    calls("""
recoup.budget("1MiB", device="cuda")
recoup.budget("1MiB", device=0)
recoup.budget("1MiB", device="meta")
recoup.budget("1MiB", device="gpu")
recoup.budget("1MiB", device=1.0)
recoup._C.Engine(recoup._C.Options(budget_bytes=1 << 20), "cuda:0").enter()
""")
    + calls(ON_A_GPU, light=False, environment={"RECOUP_GPUS": "0"})
    + calls(ON_A_GPU, light=False, environment={"RECOUP_GPUS": "all"})
)

WARNINGS = programs("""
recoup.budget(4)
---
recoup.budget(4096)
---
model = torch.nn.Linear(8, 8)
with thread_at_work("loader"), recoup.budget("1MiB", spill="1MiB", spill_dir="."):
    pass
""") + programs("""
machine_with("160MiB")
with recoup.budget("auto") as run:
    held = torch.randn((run.stats().budget_bytes - (1 << 20)) // 4)
    others = b"x" * (1 << 28)
    run.mark_step()
""", masked=True)  # fmt: skip

SECTIONS: dict[str, list[Case]] = {
    "Arguments": ARGUMENTS,
    "GPUs": GPUS,
    "Warnings": WARNINGS,
}
