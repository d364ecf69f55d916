"""The checks of tests/python/test_gpu.py, each in a process of its own, some at a time; no pytest.

Checks that measure all that the device has given run alone, after the others. A check that fails
beside others runs again alone.
"""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpu
import workers
from rows import report, settings

TESTS = Path(__file__).parents[2] / "tests/python"
WORKER = TESTS / "gpu_worker.py"
SECONDS = 90
"""Of one check."""
AT_A_TIME = 12
STREAM_SEEDS = ("1", "2", "3")
FROM_TRANSFORMERS = ("bert", "gpt2", "vit", "resnet50")
REPEATED = 10
"""The most failed checks that run again, each alone."""
IN_REHEARSAL = ("tensors_outlive_the_scope", "memory_is_counted")

Words = tuple[str, ...]
EXPANDABLE = "expandable"
"""The first word of a check that runs where PyTorch's allocator has expandable segments."""


def names(rehearsal: bool, real: bool) -> list[Words]:
    """What the worker is called with, in order: small programs, streams, trainings."""
    # Imported here, for it takes seconds and needs recoup.
    import gpu_worker
    from train import PAIRS

    if rehearsal:
        return [(name,) for name in IN_REHEARSAL]
    found: list[Words] = [
        (name,)
        for name in gpu_worker.CHECKS
        if name != "training" and (real or name not in gpu_worker.CUDA_ONLY)
    ]
    found += [("streams", seed) for seed in STREAM_SEEDS]
    if real:
        found += [(EXPANDABLE, name) for name in gpu_worker.EXPANDABLE]
    there = importlib.util.find_spec("transformers") is not None
    for net, variant in PAIRS:
        if there or net not in FROM_TRANSFORMERS:
            found.append(("training", net, variant))
        else:
            row = f"training {net} {variant}"
            report(row, result="skipped", reason="transformers is not installed")
    return found


def run(device: str, words: Words) -> tuple[str, str, float]:
    """The result, why it is so, and seconds."""
    from gpu_worker import EXPANDABLE_SEGMENTS

    expandable = words[0] == EXPANDABLE
    command = (sys.executable, WORKER, device, *words[expandable:])
    environment = EXPANDABLE_SEGMENTS if expandable else {}
    worked = workers.run(" ".join(words), command, SECONDS, environment, TESTS)
    if worked.result == "ok" and worked.output.strip():
        return "skipped", worked.output.strip()[:300], worked.seconds
    return worked.result, worked.reason, worked.seconds


def main() -> int:
    told = settings()
    device = told["device"]
    checks = names(told["rehearsal"], device.startswith("cuda"))

    def one(words: Words) -> tuple[Words, str]:
        result, reason, seconds = run(device, words)
        report(" ".join(words), result=result, reason=reason, s=seconds)
        return words, result

    import gpu_worker

    alone = [words for words in checks if words[-1] in gpu_worker.ALONE]
    beside = [words for words in checks if words not in alone]
    with ThreadPoolExecutor(min(AT_A_TIME, max(1, gpu.cores() * 3 // 4))) as pool:
        results = list(pool.map(one, beside))
    results += map(one, alone)
    bad = [words for words, result in results if result in ("failed", "time limit")]
    failed = [" ".join(words) for words in bad[REPEATED:]]
    for words in bad[:REPEATED]:
        result, reason, seconds = run(device, words)
        note = "alone; it failed beside others" if result == "ok" else reason
        report(" ".join(words), result=result, reason=note, s=seconds)
        if result != "ok":
            failed.append(" ".join(words))
    if failed:
        print(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}"[:1000])
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
