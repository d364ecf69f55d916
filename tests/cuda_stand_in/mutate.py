"""Drops each wait and event of recoup, one call site at a time, and checks that a test fails.

    mutate.py [--out PAGE] [--together] [check[:argument]...]

`MUTATE=1 make test-cuda-stand-in` calls it. The first run finds the call sites: see Note
[Call sites] in device/faults.h. Then, for each site, the checks that called it are run with the
calls of that site dropped. A check notices when it fails, by a race or otherwise.

Events that only measure the speed of copies do not order any work, and are left out.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import gpu_worker
import recoup

DEVICE = "cuda:0"
LIMIT_SECONDS = 120  # per check
SAME_FRAMES = 3  # innermost frames that distinguish two sites
# Functions that only forward a call.
NOT_SHOWN = (
    "Cudart::",
    "std::",
    "boost::",
    "c10::",
    "__invoke",
    "_M_invoke",
    "operator",
    "void std::",
)
# Checks of a few seconds with waits across streams, a spill tier, external memory, or two devices.
CHECKS = (
    "streams:1",
    "streams:2",
    "spilling",
    "a_small_tier",
    "the_exit_fetches_live_values",
    "values_restored_at_the_exit_are_ready_on_any_stream",
    "memory_read_by_a_replay_is_not_reused_before_it",
    "a_new_stream_waits_for_replayed_values",
    "a_known_stream_waits_for_replayed_values",
    "a_value_spilled_just_before_is_fetched",
    "inputs_of_replays_are_overwritten_after_them",
    "an_allocation_is_ordered_on_the_requesting_stream",
    "memory_of_a_left_scope_is_freed_after_its_kernels",
    "traces_are_recorded",
    "a_model_from_before_the_scope_is_trained",
    "a_model_from_an_earlier_scope_is_trained",
    "work_on_other_streams_ends_before_the_import",
    "writes_on_other_streams_end_before_the_import",
)


@dataclass
class Site:
    """A place in recoup that calls a function of the runtime."""

    function: str
    keys: list[str]
    offsets: list[str]
    checks: list[str] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)
    label: str = ""


def run(check: str, **environment: str) -> tuple[bool, str]:
    """Runs a check in a fork of this process, which has not used CUDA.

    Returns whether it passed, and its output.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = os.fork()
        if process == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.environ.update(environment)
            signal.alarm(LIMIT_SECONDS)
            try:
                gpu_worker.run([DEVICE, *check.split(":")])
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        _, status = os.waitpid(process, 0)
        output.seek(0)
        return status == 0, output.read()


def find_sites(checks: list[str]) -> dict[str, Site]:
    """Returns call sites by key. Fails when a check fails without a mutation."""
    sites: dict[str, Site] = {}
    for check in checks:
        with tempfile.NamedTemporaryFile("r") as file:
            passed, said = run(check, CUDA_STAND_IN_SITES=file.name)
            assert passed, f"{check} fails without a mutation:\n{said[-3000:]}"
            for line in file:
                function, key, *offsets = line.split()
                site = sites.setdefault(key, Site(function, [key], offsets))
                site.checks.append(check)
    return sites


def library() -> str:
    return str(Path(recoup._C.__file__).parent / "lib/librecoup_torch.so")


def name_sites(sites: list[Site]) -> None:
    """Labels sites with the called functions of recoup, without those that only forward a call."""
    offsets = sorted({offset for site in sites for offset in site.offsets})
    # A return address is after its call instruction.
    asked = [hex(int(offset, 16) - 1) for offset in offsets]
    command = ["addr2line", "-e", library(), "-f", "-i", "-C", "-a", *asked]
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    frames: dict[str, list[str]] = defaultdict(list)
    address = ""
    lines = iter(text.stdout.splitlines())
    for line in lines:
        if re.fullmatch(r"0x[0-9a-f]+", line):
            address = hex(int(line, 16) + 1)
            line = next(lines)
        next(lines)  # the file
        name = re.sub(r"\(.*|recoup::detail::|cuda::|\(anonymous namespace\)::", "", line)
        frames[address].append(name)
    for site in sites:
        names = [name for offset in site.offsets for name in frames[hex(int(offset, 16))]]
        shown = [name for name in names if name and not name.startswith(NOT_SHOWN)]
        site.label = " < ".join(list(dict.fromkeys(shown))[:5])


def merge_sites(sites: Iterable[Site], same_frames: int) -> list[Site]:
    """Merges sites with the same functions and the same offsets in the innermost frames."""
    merged: dict[tuple[str, str, str], Site] = {}
    for site in sites:
        where = " ".join(site.offsets[:same_frames])
        one = merged.setdefault(
            (site.function, site.label, where), Site(site.function, [], site.offsets)
        )
        one.label = site.label
        one.keys += site.keys
        one.checks += [check for check in site.checks if check not in one.checks]
    return [merged[key] for key in sorted(merged)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="a file that gets the table too")
    parser.add_argument(
        "--together",
        action="store_true",
        help="places of the same functions are one site: of two waits each may do for the other",
    )
    parser.add_argument("checks", nargs="*")
    arguments = parser.parse_args()
    sites = find_sites(arguments.checks or list(CHECKS))
    name_sites(list(sites.values()))
    merged = merge_sites(
        (site for site in sites.values() if "measure_" not in site.label),
        1 if arguments.together else SAME_FRAMES,
    )
    rows = ["| call | from | noticed by, with two of them |", "|---|---|---|"]
    for site in merged:
        for check in site.checks:
            if not run(check, CUDA_STAND_IN_DROP=",".join(site.keys))[0]:
                site.noticed.append(check)
        noticed = f"{len(site.noticed)} of {len(site.checks)}: {', '.join(site.noticed[:2])}"
        rows.append(f"| {site.function} | {site.label} | {noticed} |")
        print(rows[-1], flush=True)
    missed = [site.label for site in merged if not site.noticed]
    print(f"{len(merged)} call sites, {len(missed)} that no check notices", *missed, sep="\n")
    if arguments.out:
        Path(arguments.out).write_text("\n".join(rows) + "\n")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
