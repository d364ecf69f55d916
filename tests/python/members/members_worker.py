"""Calls PyTorch functions that are not ops on tensors, storages and scripts that are evicted.

    python members_worker.py [OWNER[.NAME] ...]     all by default

Prints one JSON line per member. A child process makes the calls; if it dies, another one continues.
"""

import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from member_calls import OWNERS, wrong
from members import MEMBERS, Member

HANG_SECONDS = 60


def call_all(members: list[Member], done: dict[str, set[str]], write: Callable[..., None]) -> None:
    for member in members:
        owner = OWNERS[member.owner]
        for form in owner.forms:
            if form in done.get(str(member), ()):
                continue
            write("plain", member, form)
            signal.alarm(HANG_SECONDS)
            try:
                found = wrong(
                    owner, member.name, form, lambda what, at=(member, form): write(what, *at)
                )
            except Exception as error:
                found = [f"{form}: {type(error).__name__}: {error}"]
            write("done", member, form, found)
    write("end", "", "")


def child(members: list[Member], done: dict[str, set[str]]) -> Iterator[list[Any]]:
    """The output of a child process, line by line."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)

        def write(*row: Any) -> None:
            os.write(writer, (json.dumps(row, default=str) + "\n").encode())

        try:
            call_all(members, done, write)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        yield from map(json.loads, lines)
    os.waitpid(process, 0)


def sweep(members: list[Member]) -> None:
    done: dict[str, set[str]] = {}
    called: dict[str, int] = {}
    failures: dict[str, list[str]] = {}
    last: list[Any] = []
    while not last or last[0] != "end":
        before, last = last, []
        for last in child(members, done):
            what, member, form, *found = last
            done.setdefault(member, set()).add(form)
            if what == "done" and found[0] is not None:
                called[member] = called.get(member, 0) + 1
                failures.setdefault(member, []).extend(found[0])
        if not last:
            raise RuntimeError(f"a child said nothing; the last word of the one before: {before}")
        if last[0] == "watched":
            failures.setdefault(last[1], []).append(f"{last[2]}: the process ended")
    for member in members:
        key = str(member)
        row = {"member": key, "called": called.get(key, 0), "failures": failures.get(key, [])}
        print(json.dumps(row), flush=True)


def main(wanted: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    members = [m for m in MEMBERS if not wanted or m.owner in wanted or str(m) in wanted]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # calls that take a name for a file's write here
        for owner in OWNERS:  # each in new processes
            sweep([member for member in members if member.owner == owner and not member.skipped])


if __name__ == "__main__":
    main(sys.argv[1:])
