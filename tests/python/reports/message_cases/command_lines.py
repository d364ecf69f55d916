"""Messages of the command line, by command."""

import json

from message_cases import trace_files
from message_cases.case import Case, commands
from page_reports import failed_report, plain_report
from test_cli_mistakes import MISTAKES, OTHERS

EMPTY = {"script.py": "", "run.rtrace": "", "dtr.log": "", "b.csv": ""}
# A program, and what it says when it is run in a budget.
TRAIN = """\
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.ones(256, 64)
for step in range({steps}):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
STUBBORN = """\
    try:
        optimizer.step()
    except BaseException:
        pass
"""
OUTSIDE = """\
import threading
import recoup, torch
value = torch.ones(4096).mul(2)
recoup.evict(value)
def work():
    recoup._C.carry(False)
    try:
        value.sum()
    except RuntimeError:
        pass
thread = threading.Thread(target=work, name="loader")
thread.start()
thread.join()
"""
PROGRAMS = {
    "train.py": TRAIN.format(steps=6),
    "short.py": TRAIN.format(steps=1),
    "empty.py": "",
    "big.py": "import torch\ntorch.ones(1 << 22)\n",
    "fails.py": TRAIN.format(steps=1) + "raise SystemExit(3)\n",
    "fails_late.py": TRAIN.format(steps=3) + "raise SystemExit(3)\n",
    "vanishes.py": TRAIN.format(steps=1) + "import os\nos._exit(4)\n",
    "killed.py": "import os\nos.kill(os.getpid(), 9)\n",
    "argued.py": "import argparse\nargparse.ArgumentParser().parse_args()\n",
    "removes.py": "import shutil\nshutil.rmtree('out')\n" + TRAIN.format(steps=3),
    "stubborn.py": TRAIN.format(steps=1000).replace("    optimizer.step()", STUBBORN),
    "outside.py": OUTSIDE,
    "some.json": "{}",
}
NO_STEPS = trace_files.file(trace_files.NAME + trace_files.KERNEL + trace_files.op())
NO_BYTES = trace_files.file(trace_files.NAME + trace_files.record(27, 0) * 3)
TRACES = {
    "text.rtrace": "hello",
    "no-steps.rtrace": NO_STEPS,
    "no-bytes.rtrace": NO_BYTES,
    "steps.rtrace": trace_files.steps([12, 12, 12, 12]),
    "few.rtrace": trace_files.steps([12, 12, 12]),
    "unlike.rtrace": trace_files.steps([4, 12, 6]),
    "a.csv": "id,lower,upper,size\na,0,2,64\nb,1,3,64\n",
    "bad.csv": "id,lower,upper,size\na,0\n",
    "no.log": "hello",
}
BUDGET = "--budget 4MiB"


def mistakes(command: str) -> list[Case]:
    """Those of test_cli_mistakes.py."""
    found = MISTAKES[command] if command else OTHERS
    before = ["recoup", command] if command else ["recoup"]
    lines = (" ".join([*before, *(_quoted(word) for word in words)]) for words, _ in found)
    return commands("\n".join(lines), files=EMPTY, light=True)


def _quoted(word: str) -> str:
    return f"'{word}'" if not word or " " in word or "%" in word else word


RUN = commands(f"""
recoup run {BUDGET} not-there.py
recoup run {BUDGET} --trace run.rtrace --report run.rtrace train.py
recoup run {BUDGET} --report train.py train.py
recoup run {BUDGET} --option seed=1 --option seed=2 train.py
recoup run {BUDGET} --option in_place=7 train.py
recoup run {BUDGET} --option decisions=maybe train.py
recoup run {BUDGET} --option usefulness=maybe train.py
recoup run {BUDGET} --option block_size=lots train.py
recoup run {BUDGET} --option move_ns_per_byte=fast train.py
recoup run {BUDGET} --option kinetic=true --policy lru train.py
recoup run {BUDGET} --option kinetic=3 train.py
recoup run {BUDGET} --option max_depth=0 train.py
recoup run {BUDGET} --suggestions some.json --report run.html train.py
recoup run {BUDGET} --device cuda train.py
recoup run {BUDGET} --device meta train.py
recoup run {BUDGET} --spill 1MiB --spill-dir /dev/shm train.py
recoup run {BUDGET} --spill 1MiB --spill-dir '' train.py
recoup run --budget 1000TiB train.py
recoup run --budget 4 empty.py
recoup run {BUDGET} train.py
recoup run {BUDGET} --report run.json --timeline run.perfetto --trace run.rtrace train.py
recoup run {BUDGET} --adapt --spill 64MiB --report run.htlm train.py
recoup run {BUDGET} --option cost_model=bytes train.py
recoup run {BUDGET} empty.py
recoup run {BUDGET} big.py
recoup run {BUDGET} argued.py --policy lru
recoup run {BUDGET} --quiet outside.py
""", files=PROGRAMS)  # fmt: skip

RUN_MASKED = commands(f"""
recoup run {BUDGET} --progress train.py
recoup run {BUDGET} --report out/a.json --timeline out/b.json --trace out/c.rtrace removes.py
""", files=PROGRAMS | {"out/a": ""}, masked=True)  # fmt: skip

# Its table depends on the time that ops take.
TEXTS = (
    r"^(The program|The largest|Only two|Of the recorded|A step|Without a|This|A batch|[Ww]ith |"
    r"It is|Copies|res|Sug|  recoup.* 1MiB)"
)
SUGGEST = commands("""
recoup suggest --steps 3 train.py
recoup suggest --steps 3 --spill 1GiB train.py
recoup suggest --steps 3 --batch 256 --batch-size-for 1MiB train.py
recoup suggest --steps 3 --batch 256 --batch-size-for 1MiB --lengths 7:8 train.py
recoup suggest --steps 9 train.py
recoup suggest fails_late.py
recoup suggest stubborn.py --steps 2
""", files=PROGRAMS, masked=True, only=TEXTS) + commands("""
recoup suggest --steps 3 --batch 256 --batch-size-for 10KiB train.py
recoup suggest --steps 3 --batch 256 --batch-size-for 1MiB --lengths 64:128 train.py
recoup suggest empty.py
recoup suggest short.py
recoup suggest fails.py
recoup suggest vanishes.py
recoup suggest killed.py
""", files=PROGRAMS) + commands("""
recoup suggest --steps 2 --keep-trace out/run.rtrace removes.py
recoup suggest --steps 2 --json out/found.json removes.py
""", files=PROGRAMS | {"out/a": ""}, only="cannot write") + commands("""
recoup suggest --trace text.rtrace
recoup suggest --trace no-steps.rtrace
recoup suggest --trace no-bytes.rtrace
recoup suggest --whole-run --steps 3 train.py
recoup suggest --batch 8 --batch-size-for 1MiB --time-plain train.py
recoup suggest --trace steps.rtrace
recoup suggest --trace steps.rtrace --max-time-ratio 1.01
recoup suggest --trace few.rtrace
recoup suggest --trace unlike.rtrace
""", files={**PROGRAMS, **TRACES})  # fmt: skip

OFFLINE = {
    "simulate": """
recoup simulate text.rtrace
recoup simulate no-bytes.rtrace
recoup simulate no.log
recoup simulate no-steps.rtrace --budgets 1
recoup simulate no-steps.rtrace --budgets 0
recoup simulate no-steps.rtrace --budgets 99999..1
recoup simulate no-steps.rtrace --plot out.txt
recoup simulate no-steps.rtrace --optimum --spill 1MiB
recoup simulate no-steps.rtrace --spill-bandwidth fast
recoup simulate no-steps.rtrace --budgets 100,50 --max-time-ratio 1.1 --policy recoup lru
recoup simulate no-steps.rtrace --optimum --budgets 100
recoup simulate no-steps.rtrace --json NAME
recoup simulate steps.rtrace --optimum --budgets 100 --time-limit 1
""",
    "layout": """
recoup layout bad.csv
recoup layout text.rtrace
recoup layout no.log
recoup layout a.csv
recoup layout a.csv --dump
recoup layout a.csv --capacity 64B
recoup layout a.csv --capacity 64B --planner all
recoup layout a.csv --capacity 64B --planner best-fit
recoup layout no-steps.rtrace --disable-inplace-ops relu
recoup layout a.csv --json NAME
recoup layout a.csv --json /proc/1/out.json
""",
    "order": """
recoup order text.rtrace
recoup order no-steps.rtrace
recoup order no-steps.rtrace --write out.rtrace
recoup order no-steps.rtrace --json NAME
""",
}
BENCH = commands("""
recoup bench --budgets 2000
recoup bench --nets all --budgets 100..50 --timeline out.png
recoup bench --size real --policies dtr
recoup bench --size real --spill-dir .
recoup bench --alternatives all --device cuda
recoup bench --out some.json --nets mlp
""", files=PROGRAMS)  # fmt: skip

# A program that differs by its environment.
VARIES = """\
import functools, os, numpy, torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5))
optimizer = torch.optim.SGD(model.parameters(), lr=float(os.environ.get("RATE", 0.1)))
@torch.library.custom_op("varies::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * float(os.environ.get("SCALE", 1))
for step in range(int(os.environ.get("STEPS", 2))):
    x, u, v = torch.ones(256, 64), torch.full((64,), 2.0), torch.full((64,), 3.0)
    if "ARRAY" in os.environ:
        x = torch.from_numpy(numpy.full((256, 64), 2, dtype="float32"))
    if "TWICE" in os.environ:
        model(x)
    if "MORE" in os.environ:
        model.register_buffer("more", torch.ones(int(os.environ["MORE"])))
    run = model
    if "AGAIN" in os.environ:
        run = functools.partial(checkpoint, model, use_reentrant=False, preserve_rng_state=False)
    out = run(scale(x)) * (u if "SWAP" in os.environ else v)
    if "HOOK" in os.environ:
        out.register_hook(lambda gradient: gradient * 1.7)
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
VERIFIED = PROGRAMS | {
    "varies.py": VARIES,
    "fails_early.py": "raise SystemExit(3)\n",
    "out/a": "",
    "old.digests": '{"recoup digests": 0}\n',
    "short.digests": '{"recoup digests": 2}\n',
    "damaged.digests": '{"recoup digests": 2}\n{"step": 1}\n',
}
VERIFY = commands("""
recoup verify varies.py -- A=1
recoup verify varies.py -- --spill 1GiB
recoup verify varies.py -- --budget 1MiB
recoup verify varies.py -- STEPS=3
recoup verify varies.py -- STEPS=1
recoup verify varies.py -- RATE=0.2
recoup verify varies.py -- ARRAY=1
recoup verify varies.py -- TWICE=1
recoup verify varies.py -- AGAIN=1
recoup verify varies.py -- HOOK=1
recoup verify varies.py -- SWAP=1
recoup verify varies.py -- SCALE=2
recoup verify varies.py -- MORE=3
recoup verify MORE=2 varies.py -- varies.py
recoup verify MORE=2 varies.py -- MORE=3
recoup verify --record out/digests removes.py
recoup verify --record digests varies.py
recoup verify --against some.json varies.py
recoup verify --against old.digests varies.py
recoup verify --against short.digests varies.py
recoup verify --against damaged.digests varies.py
recoup verify empty.py -- varies.py
recoup verify varies.py -- fails_early.py
recoup verify varies.py -- killed.py
recoup verify varies.py -- --spill 1MiB --spill-dir not-there --budget 1MiB
""", files=VERIFIED)  # fmt: skip

COMPARED = {
    name: json.dumps({key: value for key, value in report.items() if key != "step"})
    for name, report in (("a.json", plain_report()), ("b.json", failed_report()))
}
COMPARE = commands("""
recoup compare a.json b.json
recoup compare some.json a.json
""", files=PROGRAMS | COMPARED)  # fmt: skip

DOCTOR = commands("""
recoup doctor --spill-dir /dev/shm
recoup doctor --spill-dir not-there
""", only="^unsupported|^- (GPU budgets|a spill)|not-there") + commands("""
recoup policies
""")  # fmt: skip

SECTIONS: dict[str, list[Case]] = {
    "recoup": mistakes(""),
    "recoup run": mistakes("run") + RUN + RUN_MASKED,
    "recoup suggest": mistakes("suggest") + SUGGEST,
    **{
        f"recoup {name}": mistakes(name) + commands(lines, files=TRACES, masked=name == "layout")
        for name, lines in OFFLINE.items()
    },
    "recoup compare": mistakes("compare") + COMPARE,
    "recoup verify": mistakes("verify") + VERIFY,
    "recoup bench": mistakes("bench") + BENCH,
    "recoup doctor and recoup policies": mistakes("doctor") + mistakes("policies") + DOCTOR,
}
