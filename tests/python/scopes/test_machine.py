"""recoup._memory.machine: how much memory is free, on made-up machines and on this one."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from made_up_machine import GIB, made_up, version_1, version_2, write
from recoup._memory import machine
from recoup._memory.machine import Limit, look

UNLIMITED = 9223372036854771712  # "no limit" in version 1
PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_physical_memory_alone(tmp_path: Path) -> None:
    roots = made_up(tmp_path)
    found = look(roots)
    only = Limit("physical", str(roots.proc / "meminfo"), 64 * GIB, 48 * GIB)
    assert found.limits == [only] and found.problems == []
    assert found.free == found.most == only


def test_version_2_counts_page_cache_as_free(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="0::/job")
    folder = version_2(roots, "job", 8 * GIB, 3 * GIB, cache=GIB)
    found = look(roots)
    assert found.free == found.most
    assert found.free == Limit("cgroup", str(folder / "memory.max"), 8 * GIB, 6 * GIB)


def test_the_least_of_nested_limits_counts(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="0::/a/b/c")
    version_2(roots, "a", 10 * GIB, 9 * GIB)  # 1 GiB free
    version_2(roots, "a/b", "max", 2 * GIB)
    version_2(roots, "a/b/c", 6 * GIB, GIB)  # 5 GiB free
    version_2(roots, "a/other", 1, 1)
    found = look(roots)
    assert (found.free.source, found.free.free_bytes) == (
        str(roots.cgroup / "a/memory.max"),
        GIB,
    )
    assert found.most.limit_bytes == 6 * GIB
    assert len(found.limits) == 3


def test_memory_high_limits_free_bytes_and_kills_no_process(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="0::/job")
    version_2(roots, "job", "max", GIB, high=3 * GIB)
    found = look(roots)
    assert (found.free.kind, found.free.free_bytes) == ("slows down", 2 * GIB)
    assert found.most.kind == "physical"


def test_a_cgroup_above_its_limit_has_nothing_free(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="0::/job")
    version_2(roots, "job", GIB, 2 * GIB)
    assert look(roots).free.free_bytes == 0


@pytest.mark.parametrize("path", ["/", "/../..", "/not/seen/here", "/../other"])
def test_a_container_sees_its_own_cgroup_as_the_root(tmp_path: Path, path: str) -> None:
    roots = made_up(tmp_path, cgroup=f"0::{path}")
    version_2(roots, ".", 4 * GIB, GIB)
    version_2(roots, "other", 1, 1)  # a cgroup that the container made
    assert look(roots).free.free_bytes == 3 * GIB


def test_version_1(tmp_path: Path) -> None:
    lines = "5:cpu,cpuacct:/\n4:memory:/docker/x:y\n1:name=systemd:/"
    roots = made_up(tmp_path, cgroup=lines)
    version_1(roots, ".", UNLIMITED, 20 * GIB)
    version_1(roots, "docker", UNLIMITED, 9 * GIB)
    folder = version_1(roots, "docker/x:y", 5 * GIB, 4 * GIB, cache=2 * GIB)
    found = look(roots)
    assert found.free == Limit("cgroup", str(folder / "memory.limit_in_bytes"), 5 * GIB, 3 * GIB)
    assert len(found.limits) == 2


def test_version_1_names_limits_that_a_container_does_not_see(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="4:memory:/host/pod/container")
    version_1(roots, ".", UNLIMITED, 2 * GIB, above=7 * GIB)
    found = look(roots)
    assert found.free.source.endswith("memory/memory.stat (hierarchical_memory_limit)")
    assert (found.most.limit_bytes, found.free.free_bytes) == (7 * GIB, 5 * GIB)


def test_version_1_names_its_own_limit_once(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="4:memory:/")
    version_1(roots, ".", 2 * GIB, GIB, above=2 * GIB)
    assert len(look(roots).limits) == 2


def test_cgroups_of_both_versions(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="4:memory:/one\n0::/two")
    version_1(roots, "one", 5 * GIB, GIB)
    write(roots.cgroup / "unified/two/memory.max", 3 * GIB)
    write(roots.cgroup / "unified/two/memory.current", GIB)
    write(roots.cgroup / "unified/two/memory.high", "max")
    assert sorted(each.free_bytes for each in look(roots).limits) == [2 * GIB, 4 * GIB, 48 * GIB]


def test_version_2_with_a_memory_controller_of_version_1(tmp_path: Path) -> None:
    """As on most hybrid systems: version 2 is mounted for systemd and has no memory files."""
    roots = made_up(tmp_path, cgroup="4:memory:/one\n0::/one")
    (roots.cgroup / "unified/one").mkdir(parents=True)
    version_1(roots, "one", 5 * GIB, GIB)
    found = look(roots)
    assert found.free.free_bytes == 4 * GIB and found.problems == []


@pytest.mark.parametrize("text", ["lots", "-1", "1.5", "0x10", "9" * 30, "12 34", "\u0664"])
def test_a_value_that_is_not_a_number_is_reported_and_sets_no_limit(
    tmp_path: Path, text: str
) -> None:
    roots = made_up(tmp_path, cgroup="0::/job")
    folder = version_2(roots, "job", text, GIB)
    found = look(roots)
    assert found.free.kind == "physical"
    assert found.problems == [f"{folder}/memory.max says {text!r}, which is not a number of bytes"]


def test_garbage_in_other_files(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="garbage\n\n0:\n0::relative\n7::/\n::\n0::/job")
    folder = version_2(roots, "job", 4 * GIB, GIB)
    (folder / "memory.stat").write_bytes(b"\xff\xfe\ninactive_file\nactive_file much\n")
    write(roots.proc / "self/limits", "Max address space\nMax data size few bytes")
    found = look(roots)
    assert found.free.free_bytes == 3 * GIB
    assert len(found.problems) == 2, found.problems


def test_a_cgroup_without_its_usage_has_the_usage_of_the_process(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="0::/job")
    folder = version_2(roots, "job", 4 * GIB, GIB)
    (folder / "memory.current").unlink()
    (folder / "memory.stat").unlink()
    assert look(roots).free.free_bytes == 3 * GIB  # VmRSS is 1 GiB


def test_missing_files(tmp_path: Path) -> None:
    found = look(machine.Roots(proc=tmp_path / "proc", cgroup=tmp_path / "cgroup"))
    assert found.most.limit_bytes == PHYSICAL
    assert 0 < found.free.free_bytes <= found.most.limit_bytes
    assert found.problems == []


def test_folders_in_place_of_files(tmp_path: Path) -> None:
    roots = made_up(tmp_path, cgroup="0::/")
    write(roots.cgroup / "cgroup.controllers", "memory")
    (roots.cgroup / "memory.max").mkdir()
    found = look(roots)
    assert found.free.kind == "physical"
    assert found.problems == [f"{roots.cgroup}/memory.max: Is a directory"]


def test_without_mem_available_page_cache_does_not_count_as_free(tmp_path: Path) -> None:
    roots = made_up(tmp_path)
    write(roots.proc / "meminfo", "MemTotal: 1000 kB\nMemFree: 300 kB\nCached: 500 kB")
    assert look(roots).free.free_bytes == 300 * 1024


def test_a_limit_on_addresses(tmp_path: Path) -> None:
    roots = made_up(tmp_path)
    lines = (
        "Limit                     Soft Limit           Hard Limit           Units",
        f"Max data size             unlimited            {GIB}           bytes",
        f"Max address space         {6 * GIB}           unlimited            bytes",
    )
    write(roots.proc / "self/limits", "\n".join(lines))
    found = look(roots)
    assert (found.free.kind, found.free.free_bytes) == ("addresses", 2 * GIB)  # VmSize is 4 GiB
    assert found.most.kind == "physical"


def test_this_machine() -> None:
    found = look()
    assert found.problems == []
    assert 0 < found.free.free_bytes <= found.most.limit_bytes <= PHYSICAL
    physical = found.limits[0]
    assert physical.limit_bytes == PHYSICAL


def test_ulimit_of_this_machine() -> None:
    """A process finds the limit that `ulimit -v` shows."""
    most = 40 << 30
    code = (
        "from recoup._memory import machine\n"
        "print([each.limit_bytes for each in machine.look().limits if each.kind == 'addresses'])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout == f"[{most}]\n"
