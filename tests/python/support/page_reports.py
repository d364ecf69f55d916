"""Made-up reports for recoup.page: a training step of GPT-2 in half of its memory, and others."""

import random
from collections.abc import Iterator
from typing import Any

MIB = 1 << 20
EVIL = '<img src=x onerror="alert(1)">'
ENDINGS = "</script></style></title><!--<script>alert(1)</script>&amp;'\"\u2028\u202e\udcff\x00\n"
BLOCK = (  # op, module within the block, MiB, milliseconds
    ("aten::native_layer_norm", "ln_1", 12, 2),
    ("aten::addmm", "attn.c_attn", 36, 9),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attn", 12, 14),
    ("aten::addmm", "attn.c_proj", 12, 4),
    ("aten::add.Tensor", "", 12, 1),
    ("aten::native_layer_norm", "ln_2", 12, 2),
    ("aten::addmm", "mlp.c_fc", 48, 12),
    ("aten::gelu", "mlp.act", 48, 6),
    ("aten::addmm", "mlp.c_proj", 12, 12),
)
PARAMETERS = (  # module within the block, MiB
    ("ln_1", 0.01),
    ("attn.c_attn", 6.76),
    ("attn.c_proj", 2.25),
    ("ln_2", 0.01),
    ("mlp.c_fc", 9.01),
    ("mlp.c_proj", 9.0),
)
LAYERS = 12


class _Step:
    """Simulates ops in a budget: evicts the oldest activations first, and replays them."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.now = 10**12
        self.begin = self.now
        self.used = 0
        self.groups: dict[tuple[str, str, str], int] = {}
        self.spans: list[list[int]] = []
        self.charged: list[list[int]] = [[self.now, 0]]
        self.events: list[list[Any]] = []
        self.held: dict[Any, tuple[int, int, int]] = {}  # key: begin, bytes, group
        self.modules: dict[str, dict[str, Any]] = {}
        self.peak: tuple[int, list[tuple[int, int]]] = (0, [])
        self.random = random.Random(7)

    def group(self, module: str, kind: str, op: str) -> int:
        return self.groups.setdefault((module, kind, op), len(self.groups))

    def counts(self, module: str) -> dict[str, Any]:
        names = ("ops", "op_ns", "replays", "replay_ns", "evictions", "evicted_bytes")
        return self.modules.setdefault(module, {"module": module, **dict.fromkeys(names, 0)})

    def hold(self, key: Any, size: int, group: int) -> None:
        while self.used + size > self.budget_bytes:
            self.evict(next(held for held in self.held if held[0] == "activation" and held != key))
        self.held[key] = (self.now, size, group)
        self.charge(size)
        if self.used > self.peak[0]:
            self.peak = (self.used, [(size, group) for _, size, group in self.held.values()])

    def drop(self, key: Any) -> None:
        begin, size, group = self.held.pop(key)
        self.spans.append([begin, self.now, size, group])
        self.charge(-size)

    def charge(self, size: int) -> None:
        self.used += size
        self.charged.append([self.now, self.used])

    def evict(self, key: Any) -> None:
        _, size, group = self.held[key]
        module = next(name for name, index in self.groups.items() if index == group)[0]
        self.counts(module)["evictions"] += 1
        self.counts(module)["evicted_bytes"] += size
        self.events.append(["evict", self.now, 0, size, "", group])
        self.drop(key)

    def run(self, kind: str, op: str, module: str, size: int, millis: float) -> None:
        duration = int(millis * 1e6 * self.random.uniform(0.9, 1.15))
        self.events.append(
            [kind, self.now, duration, size, op, self.group(module, "activations", op)]
        )
        counts = self.counts(module)
        counts["replays" if kind == "replay" else "ops"] += 1
        counts["replay_ns" if kind == "replay" else "op_ns"] += duration
        self.now += int(duration * 1.02)

    def need(self, layer: int, index: int) -> None:
        key = ("activation", layer, index)
        if key in self.held:
            self.held[key] = self.held.pop(key)
            return
        op, below, mib, millis = BLOCK[index]
        if index:
            self.need(layer, index - 1)
        module = block_module(layer, below)
        self.hold(key, mib * MIB, self.group(module, "activations", op))
        self.run("replay", op, module, mib * MIB, millis)


def block_module(layer: int, below: str) -> str:
    return f"transformer.h.{layer}.{below}".rstrip(".")


def _parameters() -> Iterator[tuple[str, int]]:
    yield "transformer.wte", int(147.2 * MIB)
    yield "transformer.wpe", 3 * MIB
    for layer in range(LAYERS):
        for below, mib in PARAMETERS:
            yield block_module(layer, below), int(mib * MIB)
    yield "transformer.ln_f", 6144


def _train(step: _Step) -> None:
    """One step: forward pass, backward pass in reverse order, AdamW."""
    for module, size in _parameters():
        step.hold(("parameter", module), size, step.group(module, "parameters", ""))
        step.hold(("state", module), 2 * size, step.group(module, "optimizer", "aten::zeros_like"))
    step.hold(("ids",), MIB // 16, step.group("", "inputs", ""))
    for module in ("transformer.wte", "transformer.wpe"):
        step.run("op", "aten::embedding", module, 12 * MIB, 3)
    for layer in range(LAYERS):
        for index, (op, below, mib, millis) in enumerate(BLOCK):
            module = block_module(layer, below)
            step.hold(
                ("activation", layer, index), mib * MIB, step.group(module, "activations", op)
            )
            step.run("op", op, module, mib * MIB, millis)
    logits = 786 * MIB
    step.hold(("logits",), logits, step.group("lm_head", "activations", "aten::mm"))
    step.run("op", "aten::mm", "lm_head", logits, 160)
    step.hold(
        ("d logits",), logits, step.group("", "workspace", "aten::_log_softmax_backward_data")
    )
    step.run("op", "aten::_log_softmax_backward_data", "", logits, 60)
    step.drop(("logits",))
    step.run("op", "aten::mm", "lm_head", logits, 300)
    step.drop(("d logits",))
    for layer in reversed(range(LAYERS)):
        for index in reversed(range(len(BLOCK))):
            _, below, mib, millis = BLOCK[index]
            module = block_module(layer, below)
            step.need(layer, index)
            step.run("op", "aten::mm", module, mib * MIB, 2 * millis)
            step.drop(("activation", layer, index))
            if below in dict(PARAMETERS):
                group = step.group(module, "gradients", "aten::mm")
                step.hold(("gradient", module), int(dict(PARAMETERS)[below] * MIB), group)
        step.events.append(["move", step.now, 900_000, 24 * MIB, "", -1])
    for module, size in _parameters():
        step.run("op", "aten::_fused_adamw_", module, size, size / MIB / 4)
    for key in list(step.held):
        step.drop(key)


def gpt2_report(budget_bytes: int = 3300 * MIB, spilled: bool = False) -> dict[str, Any]:
    """The report of a run of GPT-2 (124 M parameters)."""
    step = _Step(budget_bytes)
    _train(step)
    names = list(step.groups)
    if spilled:
        for at in range(0, len(step.events), 9):
            kind = ("spill", "fetch")[at % 2]
            step.events.append([kind, step.events[at][1], 3_000_000, 9 * MIB, "", 0])
    held: dict[tuple[str, str], list[int]] = {}
    for size, group in step.peak[1]:
        module, kind, _ = names[group]
        row = held.setdefault((module, kind), [0, 0])
        row[0] += size
        row[1] += 1
    return {
        **plain_report(),
        "title": "GPT-2 in half of its memory",
        "command": ["train.py", "--model", "gpt2", "--batch", "8", "--note", "two words"],
        "stats": stats_of(step),
        "peak": {
            "bytes": step.peak[0],
            "non_tensor_bytes": 0,
            "rows": [
                {"module": module, "kind": kind, "bytes": size, "values": values}
                for (module, kind), (size, values) in held.items()
            ],
        },
        "modules": list(step.modules.values()),
        "step": {
            "name": "AdamW",
            "number": 12,
            "begin_ns": step.begin,
            "end_ns": step.now,
            "budget_bytes": budget_bytes,
            "groups": [dict(zip(("module", "kind", "op"), name, strict=True)) for name in names],
            "spans": step.spans,
            "charged": step.charged,
            "budgets": [[step.begin, budget_bytes]],
            "events": step.events,
            "cut": False,
        },
        "step_ratio": None,
        "suggestions": [
            suggestion(5200 * MIB, 0.75, 1.01, ""),
            suggestion(3300 * MIB, 0.5, 1.13, "knee"),
            suggestion(2400 * MIB, 0.36, 2.4, "least"),
            {**suggestion(1900 * MIB, 0.28, None, ""), "status": "out of budget"},
        ],
    }


def suggestion(budget: int, fraction: float, ratio: float | None, mark: str) -> dict[str, Any]:
    return {
        "budget_bytes": budget,
        "fraction": fraction,
        "time_ratio": ratio,
        "rss_bytes": None if ratio is None else budget + 300 * MIB,
        "status": "fits",
        "mark": mark,
    }


def stats_of(step: _Step) -> dict[str, dict[str, int]]:
    total = {
        name: sum(row[name] for row in step.modules.values())
        for name in ("ops", "op_ns", "replays", "replay_ns", "evictions", "evicted_bytes")
    }
    work = {"op_count": total["ops"], "replays": total["replays"], "evictions": total["evictions"]}
    times = {"op_ns": total["op_ns"], "replay_ns": total["replay_ns"], "search_ns": 4_200_000}
    return {
        "memory": {"budget_bytes": step.budget_bytes, "peak_bytes": step.peak[0]},
        "work": {**work, "evicted_bytes": total["evicted_bytes"]},
        "time": {**times, "move_ns": 11_000_000, "bookkeeping_ns": 19_000_000},
    }


def plain_report() -> dict[str, Any]:
    """The report of a run without ops."""
    return {
        "title": "Nothing",
        "command": [],
        "versions": {"recoup": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        "settings": {
            "policy": "planned",
            "budget_bytes": 3300 * MIB,
            "kinetic": False,
            "spill": None,
        },
        "wall_ns": 74_000_000_000,
        "device": "cpu",
        "stats": {},
        "budget_changes": [],
        "shared_budget": None,
        "failures": [],
        "peak": {"bytes": 0, "non_tensor_bytes": 0, "rows": []},
        "modules": [],
        "pinned": [
            {
                "bytes": 786 * MIB,
                "values": 1,
                "by": "the program",
                "kind": "activations",
                "op": "aten::mm",
                "module": "lm_head",
                "why": "",
            },
            {
                "bytes": 475 * MIB,
                "values": 148,
                "by": "non-recomputable",
                "kind": "parameters",
                "op": "",
                "module": "",
                "why": "state that is updated in place",
            },
            {
                "bytes": 9 * MIB,
                "values": 2,
                "by": "non-recomputable",
                "kind": "parameters",
                "op": "aten::empty",
                "module": "lm_head",
                "why": "its memory is uninitialized",
            },
        ],
        "step": None,
        "suggestions": None,
        "step_ratio": None,
    }


def empty_step() -> dict[str, Any]:
    """A step in which no op was seen."""
    lists: dict[str, list[Any]] = {
        name: [] for name in ("groups", "spans", "charged", "budgets", "events")
    }
    head = {"name": "", "number": 0, "begin_ns": 5, "end_ns": 5, "budget_bytes": 0, "cut": False}
    return {**head, **lists}


def failed_report() -> dict[str, Any]:
    """GPT-2 that runs out of budget in its head."""
    report = gpt2_report()
    figures = {"asked_bytes": 786 * MIB, "budget_bytes": 3300 * MIB, "external_bytes": 0}
    figures |= {
        "non_recomputable_bytes": 1400 * MIB,
        "pinned_bytes": 12 * MIB,
        "workspace_bytes": 0,
    }
    figures |= {"evictable_bytes": 0, "largest_window_bytes": 700 * MIB}
    figures |= {"least_bytes": 3400 * MIB, "next_bytes": 4250 * MIB}
    figures |= {"next_spill_bytes": 1750 * MIB}
    figures |= {"enough_bytes": 5200 * MIB}
    report["failures"] = [
        {
            "where": "body",
            "type": "recoup.errors.OutOfBudgetError",
            "message": "recoup: out of budget in aten::mm",
            "op": "aten::mm",
            "module": "lm_head",
            "figures": figures,
            "help": [
                "A budget of 5.1 GiB is enough, without evictions, for everything that ran so far "
                "and for this allocation."
            ],
            "charged_bytes": report["peak"]["bytes"],
            "rows": report["peak"]["rows"],
        },
        {
            "where": "exit",
            "type": "OSError",
            "message": "",
            "op": "",
            "module": "",
            "figures": {},
            "help": [],
            "charged_bytes": 0,
            "rows": None,
        },
    ]
    return report


def large_report(
    spans: int = 200_000, events: int = 50_000, charges: int = 50_000
) -> dict[str, Any]:
    """A report with the largest number of rows that a page must open with."""
    chance = random.Random(3)
    groups = [
        {"module": f"layers.{layer}.{part}", "kind": kind, "op": f"aten::op{part}"}
        for layer in range(40)
        for part in ("attn", "mlp", "norm")
        for kind in ("parameters", "activations", "gradients")
    ]
    length = 10**10
    rows = []
    for _ in range(spans):
        begin = chance.randrange(length)
        lasts = chance.randrange(1, 10**8)
        rows.append(
            [begin, begin + lasts, chance.randrange(1, 4 * MIB), chance.randrange(len(groups))]
        )
    kinds = ("op", "op", "op", "replay", "evict", "spill", "fetch", "move")
    happened = [
        [
            kinds[i % 8],
            i * (length // events),
            length // events,
            MIB,
            f"aten::op{i % 50}",
            i % len(groups),
        ]
        for i in range(events)
    ]
    charged = [[at * (length // charges), chance.randrange(2 << 30)] for at in range(charges)]
    step = {"name": "SGD", "number": 3, "begin_ns": 0, "end_ns": length, "budget_bytes": 3 << 30}
    step |= {"groups": groups, "spans": rows, "charged": charged, "events": happened}
    step |= {"budgets": [], "cut": False}
    return {**plain_report(), "title": "Large", "step": step}


def _poison(value: Any) -> Any:
    """The same value with malicious text appended to each string."""
    if isinstance(value, dict):
        fixed = {name: value[name] for name in ("kind", "where") if name in value}
        return {key: _poison(item) for key, item in value.items()} | fixed
    if isinstance(value, list):
        return [_poison(item) for item in value]
    return f"{value}.{EVIL}.{ENDINGS}" if isinstance(value, str) else value


def evil_report() -> dict[str, Any]:
    """GPT-2 with names that contain scripts and markup."""
    report = failed_report()
    events = report["step"].pop("events")
    evil: dict[str, Any] = _poison(report)
    evil["step"]["events"] = [[*row[:4], row[4] + EVIL + ENDINGS, row[5]] for row in events]
    for part in ("settings", "versions", "stats"):
        evil[part] = {f"{name}{EVIL}{ENDINGS}": item for name, item in evil[part].items()}
    figures = evil["failures"][0]["figures"]
    evil["failures"][0]["figures"] = {f"{name}{EVIL}": size for name, size in figures.items()}
    return evil
