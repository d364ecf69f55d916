"""Counts what one call of an op passes in recoup: instructions, functions and source files.

    python bench/op_path.py

The op is `torch.add` of 1,024 floats, in a budget that is never reached. Valgrind counts the
instructions of librecoup_torch.so, and addr2line names the function and the file of each, inlined
functions included. The counts do not depend on the load of the machine. They contain the
allocation of the result, its record, and the end of the result before it, but no instructions of
PyTorch, of the C library or of the kernel. Needs valgrind and binutils.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from measure import add_json, parser_of, say, write_result

from recoup.bench.harness.tables import print_rows

LIBRARY = "librecoup_torch.so"
CALLS = 50
PROGRAM = f"""
import os, subprocess, torch, recoup
def control(option):
    subprocess.run(["callgrind_control", option, str(os.getpid())], check=True, capture_output=True)
torch.set_num_threads(1)
with torch.no_grad(), recoup.budget("64MiB"):
    a = torch.ones(1024)
    for calls in (200, {CALLS}):
        control("-z")  # the counts so far become zero
        for _ in range(calls):
            c = torch.add(a, a)
    control("-d")
"""
COLUMNS = {
    "op": "{op}",
    "instructions": "{instructions:,.0f}",
    "functions": "{functions}",
    "files": "{files}",
    "functions in .cpp files": "{in_sources}",
    ".cpp files": "{sources}",
}
POSITION = re.compile(r"(0x[0-9a-f]+|\+\d+|-\d+|\*) ")
OBJECT = re.compile(r"ob=\((\d+)\)(?: (.*))?")


def instructions(profile: str) -> tuple[Path, Counter[int]]:
    """The path of the library, and how often the instruction at each of its addresses ran."""
    objects: dict[str, str] = {}
    counts: Counter[int] = Counter()
    current, address, of_call = "", 0, False
    for line in profile.splitlines():
        if found := OBJECT.match(line.removeprefix("c")):
            if found[2]:
                objects[found[1]] = found[2]
            if line.startswith("ob="):
                current = objects[found[1]]
        elif line.startswith("calls="):
            of_call = True  # the next line has the cost of the called function
        elif POSITION.match(line):
            position, *_, cost = line.split()
            if position.startswith("0x"):
                address = int(position, 16)
            elif position != "*":
                address += int(position)
            if not of_call and current.endswith(LIBRARY):
                counts[address] += int(cost)
            of_call = False
    path = next(name for name in objects.values() if name.endswith(LIBRARY))
    return Path(path), counts


def places(library: Path, addresses: list[int]) -> list[set[tuple[str, str]]]:
    """For each address, the functions and files of recoup that it is in, innermost first."""
    text = "\n".join(hex(address) for address in addresses)
    command = ["addr2line", "-a", "-f", "-i", "-C", "-e", str(library)]
    output = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    found: list[set[tuple[str, str]]] = []
    function = ""
    for line in output.splitlines():
        if re.fullmatch(r"0x[0-9a-f]{16}", line):
            found.append(set())
            function = ""
        elif not function:
            function = line
        else:
            if file := re.search(r"/((?:csrc|include/recoup)/[^:]+):", line):
                found[-1].add((function, file[1]))
            function = ""
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--functions", action="store_true", help="list them, costliest first")
    add_json(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        say("counting under valgrind: about a minute")
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--dump-line=no"]
        command += [f"--callgrind-out-file={out}", sys.executable, "-c", PROGRAM]
        subprocess.run(command, check=True, capture_output=True)
        library, counts = instructions(out.with_name("out.1").read_text())
    steady = {address: count / CALLS for address, count in counts.items() if count >= CALLS}
    costs: Counter[tuple[str, str]] = Counter()
    own = 0.0
    for count, at in zip(steady.values(), places(library, list(steady)), strict=True):
        own += count if at else 0
        for place in at:
            costs[place] += count
    sources = {file for _, file in costs if file.endswith(".cpp")}
    row = {
        "op": "add",
        "instructions": own,
        "functions": len(costs),
        "files": len({file for _, file in costs}),
        "in_sources": sum(file in sources for _, file in costs),
        "sources": len(sources),
    }
    print_rows("one call", COLUMNS, [row])
    if arguments.functions:
        for (function, file), count in costs.most_common():
            print(f"{count:8.0f}  {file}  {function}")
    write_result(arguments.json, "op_path", [row])


if __name__ == "__main__":
    main()
