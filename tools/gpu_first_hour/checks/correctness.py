"""Runs the checks of tests/python/gpu/test_gpu.py in processes of their own, several at a time.

Checks that measure all of the device's memory run alone, after the others. A check that fails
while others run is repeated alone.
"""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import workers
from rows import report, settings

import gpu

TESTS = Path(__file__).parents[3] / "tests/python/gpu"
WORKER = TESTS / "gpu_worker.py"
SECONDS = 90
"""Time limit of one check."""
AT_A_TIME = 12
STREAM_SEEDS = ("1", "2", "3")
FROM_TRANSFORMERS = ("bert", "gpt2", "vit", "resnet50")
REPEATED = 10
"""Maximum number of failed checks that are repeated, each alone."""
IN_REHEARSAL = ("tensors_outlive_the_scope", "memory_is_counted")

Words = tuple[str, ...]
EXPANDABLE = "expandable"
"""The first word of a check that runs with expandable segments in PyTorch's allocator."""


def names(rehearsal: bool, real: bool) -> list[Words]:
    """Arguments of the worker, in order: small programs, streams, trainings."""
    # Imported here, because it takes seconds and needs recoup.
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
    """The result, its reason, and seconds."""
    from gpu_worker import EXPANDABLE_SEGMENTS

    expandable = words[0] == EXPANDABLE
    command = (sys.executable, WORKER, device, *words[expandable:])
    environment = EXPANDABLE_SEGMENTS if expandable else {}
    ended = workers.run(" ".join(words), command, SECONDS, environment, TESTS)
    if ended.status == 0 and ended.output.strip():
        return "skipped", ended.output.strip()[:300], ended.seconds
    return ended.result_name, ended.reason[:300], ended.seconds


def main() -> int:
    given = settings()
    device = given["device"]
    checks = names(given["rehearsal"], device.startswith("cuda"))

    def one(words: Words) -> tuple[Words, str]:
        result, reason, seconds = run(device, words)
        report(" ".join(words), result=result, reason=reason, s=seconds)
        return words, result

    import gpu_worker

    alone = [words for words in checks if words[-1] in gpu_worker.ALONE]
    together = [words for words in checks if words not in alone]
    with ThreadPoolExecutor(min(AT_A_TIME, max(1, gpu.cores() * 3 // 4))) as pool:
        results = list(pool.map(one, together))
    results += map(one, alone)
    bad = [words for words, result in results if result in ("failed", "time limit")]
    failed = [" ".join(words) for words in bad[REPEATED:]]
    for words in bad[:REPEATED]:
        result, reason, seconds = run(device, words)
        note = "alone; it failed in parallel with others" if result == "ok" else reason
        report(" ".join(words), result=result, reason=note, s=seconds)
        if result != "ok":
            failed.append(" ".join(words))
    if failed:
        print(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}"[:1000])
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
