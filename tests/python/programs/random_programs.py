"""Random programs, run plainly and under a budget, compared bit for bit.

    python random_programs.py --seeds 0:200 [--lines 100]    one JSON line a seed
    python random_programs.py --seeds 17 --show              print the program of a seed

Each seed runs in a forked child, so a crash or a hang costs that seed only. A program that fails is
cut down, line by line, to one that still fails.
"""

import argparse
import gc
import json
import os
import random
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch._decomp.decompositions_for_jvp  # loaded here once instead of in each child
import torch._dynamo

import recoup
from differential import bits, check
from program_lines import KINDS
from program_writer import ONCE, Generator, execute_line, namespace
from recoup.bench.flat_options import split

SECONDS_A_PROGRAM = 60
MAX_TRIALS = 300
ENOUGH_BYTES = 2**28  # far above the need of any program
# Plans are tried with `planning="wait"` only: those of a thread would make runs differ.
POLICIES = tuple(each.name for each in recoup.policies() if not (each.schedule or each.foresees))

COUNTS = (
    "op_count",
    "evictions",
    "replays",
    "freezes",
    "moves",
    "escapes",
    "listed_evictions",
    "fetches",
)
"""Of the run's statistics, in each row. `paged_bytes` is there, too."""
MARK = "mark()"
STEPS = 4  # repetitions of a program that is a step


PAGE_WINDOW = 2**24


def pages(seed: int) -> bool:
    """Whether all results that may be paged are paged."""
    return seed % 8 == 6


def repeats(seed: int) -> bool:
    """Whether the program is repeated as a step, so that the policy can plan."""
    return seed % 4 == 1


def look(env: dict[str, Any]) -> dict[str, Any]:
    """The bits of all variables of the program."""
    seen: dict[str, Any] = {}
    for name, value in list(env.items()):
        if isinstance(value, torch.Tensor):
            version = None if value.is_inference() else value._version
            try:
                seen[name] = (*bits(value), value.requires_grad, value.is_leaf, version)
                if value.is_leaf and value.grad is not None:
                    seen[f"{name}.grad"] = bits(value.grad)
            except recoup.OutOfBudgetError:
                raise
            except RuntimeError as error:  # autograd forbids this view, as its base was written
                if "recoup" in str(error):
                    raise
                seen[name] = str(error)
        elif isinstance(value, np.ndarray):
            seen[name] = (value.shape, value.tobytes())
    seen["gen"] = bits(env["gen"].get_state())
    seen["number"] = repr(env.get("number"))
    return seen


class Wrong(Exception):  # noqa: N818
    """The program behaves differently with recoup."""


@dataclass
class Trace:
    """The result of one run: exceptions and bits by line, and the line at which it had to stop."""

    events: dict[int, str] = field(default_factory=dict)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)
    stopped: int | None = None
    grown: int = 0


def run_plain(lines: list[str]) -> Trace:
    torch.manual_seed(0)  # a reduced program may have lost its own call
    trace, env = Trace(), namespace(None)
    run_lines(lines, env, trace, None, tight=False)
    trace.notes[len(lines)] = look(env)
    return trace


def run_lines(lines: list[str], env: dict[str, Any], trace: Trace, run: Any, tight: bool) -> None:
    for index, line in enumerate(lines):
        while True:
            try:
                if line == "note()":
                    trace.notes[index] = look(env)
                    if run:
                        check(run)
                elif line == MARK:
                    if run:
                        run.mark_step()
                else:
                    execute_line(line, env)
            except recoup.OutOfBudgetError as error:
                if not tight:
                    raise Wrong(f"line {index}: out of an ample budget: {error}") from error
                check(run)
                if line.endswith(ONCE):
                    trace.stopped = index
                    return
                trace.grown += 1
                now = run.stats().budget_bytes
                if now > ENOUGH_BYTES:
                    raise Wrong(f"line {index}: no budget is enough: {error}") from error
                run._engine.set_budget(max(error.enough_bytes, now + now // 8))
                continue
            except Exception as error:
                trace.events[index] = type(error).__name__
                if run and "recoup" in str(error).lower():
                    raise Wrong(f"line {index}: {type(error).__name__}: {error}") from error
            break


def compare(index: int, plain: dict[str, Any], watched: dict[str, Any], ignore: str = "") -> None:
    names = [
        name
        for name in sorted({*plain, *watched})
        if plain.get(name) != watched.get(name) and not (ignore and name.endswith(ignore))
    ]
    if names:
        first = names[0]
        heads = [
            [part for part in seen.get(first, ()) if not isinstance(part, bytes)]
            for seen in (plain, watched)
        ]
        raise Wrong(f"before line {index}: {names} differ; {first}: {heads[0]} and {heads[1]}")


def differential(lines: list[str], options: dict[str, Any], tight: bool) -> Any:
    """Raises Wrong, or returns the run's statistics and those of its paged results."""
    if "page_window" in options:
        os.environ["RECOUP_TEST_AIDS"] = "page"
    plain = run_plain(lines)
    trace = Trace()
    torch.manual_seed(0)
    try:
        with recoup.budget(**split(options)) as run:
            env = namespace(run)
            run_lines(lines, env, trace, run, tight)
            check(run)
    except recoup.OutOfBudgetError as error:
        if not tight:
            raise Wrong(f"scope exit: out of an ample budget: {error}") from error
        try:
            run.resume(ENOUGH_BYTES)
        except recoup.OutOfBudgetError as again:
            raise Wrong(f"scope exit: no budget is enough: {again}") from again
    for index, seen in trace.notes.items():
        compare(index, plain.notes[index], seen)
    end = len(lines) if trace.stopped is None else trace.stopped
    events = {index: name for index, name in plain.events.items() if index < end}
    if trace.events != events:
        raise Wrong(f"exceptions {sorted(set(trace.events.items()) ^ set(events.items()))}")
    if trace.stopped is None:
        compare(end, plain.notes[end], look(env))
    else:
        # The failed line may have drawn random numbers and added to gradients.
        before = run_plain(lines[:end]).notes[end]
        seen = look(env)
        seen["gen"] = before["gen"]
        compare(end, before, seen, ignore=".grad")
    return run.stats(), run.paged_results()


def choose_options(seed: int, peak_bytes: int) -> tuple[dict[str, Any], bool]:
    chance = random.Random(seed * 2 + 1)
    options: dict[str, Any] = {
        "policy": chance.choice(POLICIES),
        "usefulness": chance.random() < 0.8,
        "reuse_operands": seed % 4 != 0,
        "replay_order": chance.choice(["memory", "memory", "recursive"]),
        "in_place": chance.choice(["share", "share", "copy"]),
        "placement": chance.choice(["best-fit", "two-ended"]),
        "check_replays": chance.random() < 0.2,
        "cost_model": "bytes",  # measured times would make runs differ
        "seed": chance.randrange(100),
        "max_replay_ratio": 0,
        "small_result_bytes": 0 if seed % 5 else 1024,
    }
    tight = chance.random() < 0.7
    if repeats(seed):
        options["policy"], options["planning"] = "planned", "wait"
    if tight:
        options["budget"] = max(16384, int(peak_bytes * chance.uniform(0.3, 1.0)))
        if chance.random() < 0.3:
            options["max_replay_ratio"] = 10.0
    else:
        options["budget"] = ENOUGH_BYTES
        options["evict_after_op"] = chance.random() < 0.6
    if pages(seed):
        options["page_window"] = PAGE_WINDOW
        options["budget"] += PAGE_WINDOW
    return options, tight


def measure_peak(lines: list[str]) -> int:
    with recoup.budget(
        ENOUGH_BYTES, options=recoup.Options(cost_model="bytes", max_replay_ratio=0)
    ) as run:
        env = namespace(run)
        run_lines(lines, env, Trace(), run, tight=False)
    return int(run.stats().peak_bytes)


# ---- one program in a child process ----


def in_child(work: Callable[[], Any]) -> dict[str, Any]:
    """The result of `work`, or how it failed: an exception, a signal or a timeout."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            try:
                answer = {"value": work()}
            except Wrong as error:
                answer = {"failure": "wrong", "text": str(error)}
            except BaseException as error:
                answer = {"failure": type(error).__name__, "text": str(error)}
            with os.fdopen(writing, "w") as pipe:
                json.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(SECONDS_A_PROGRAM)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    hung = signal.alarm(0) == 0
    signal.signal(signal.SIGALRM, previous)
    if text:
        answer = json.loads(text)
        assert isinstance(answer, dict)
        return answer
    failure = "hang" if hung else f"signal {os.WTERMSIG(status)}"
    return {"failure": failure, "text": f"the process ended with status {status}"}


def minimise(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Drops lines, in ever smaller groups, while the rest still fails."""
    trials = 0
    size = max(1, len(lines) // 2)
    while size >= 1:
        start, dropped = 0, False
        while start < len(lines) and trials < MAX_TRIALS:
            shorter = lines[:start] + lines[start + size :]
            trials += 1
            if fails(shorter):
                lines, dropped = shorter, True
            else:
                start += size
        if not (size == 1 and dropped and trials < MAX_TRIALS):
            size //= 2
    return lines


def kind_of_failure(answer: dict[str, Any]) -> str:
    """The failure without names and numbers, which a reduced program must show as well."""
    text = re.sub(r"\[.*|\d+", "", answer.get("text", ""))
    return f"{answer.get('failure')} {text[:80]}"


def write_program(seed: int, length: int) -> list[str]:
    value = in_child(lambda: Generator(seed, KINDS).program(length))
    if "failure" in value:
        raise RuntimeError(f"seed {seed}: the generator failed: {value}")
    lines = value["value"]
    assert isinstance(lines, list)
    return lines


def run_seed(seed: int, length: int, shrink: bool) -> dict[str, Any]:
    lines = write_program(seed, length)
    if repeats(seed):
        lines = [*lines, MARK] * STEPS
    options: dict[str, Any] = {"budget": ENOUGH_BYTES}
    tight = False
    answer = in_child(lambda: measure_peak(lines))
    if "failure" not in answer:
        options, tight = choose_options(seed, answer["value"])

        def work() -> dict[str, int]:
            stats, paged = differential(lines, options, tight)
            counts = {name: int(getattr(stats, name)) for name in COUNTS}
            return counts | {"paged_bytes": paged.most_bytes if paged else 0}

        answer = in_child(work)
    row = {"seed": seed, "lines": len(lines), **answer}
    if "failure" in answer:
        row["options"] = options
        row["program"] = (
            minimise(
                lines,
                lambda shorter: (
                    kind_of_failure(in_child(lambda: bool(differential(shorter, options, tight))))
                    == kind_of_failure(answer)
                ),
            )
            if shrink
            else lines
        )
    return row


def seeds_of(text: str) -> Iterator[int]:
    first, _, last = text.partition(":")
    yield from range(int(first), int(last) if last else int(first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", required=True, help="one seed, or first:end")
    parser.add_argument("--lines", type=int, default=100, help="of each program")
    parser.add_argument("--show", action="store_true", help="only print the programs")
    parser.add_argument("--no-minimise", action="store_true")
    args = parser.parse_args()
    # Each program runs in a fork: there may be no thread pools, and no child traverses old objects.
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    warnings.simplefilter("ignore")
    for seed in seeds_of(args.seeds):
        if args.show:
            print("\n".join(write_program(seed, args.lines)))
            continue
        start = time.monotonic()
        row = run_seed(seed, args.lines, not args.no_minimise)
        row["seconds"] = round(time.monotonic() - start, 2)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
