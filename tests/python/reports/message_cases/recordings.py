"""Messages about recordings: traces, logs of the DTR authors, simulations, layouts and orders."""

import gzip
import json
from typing import Any

from message_cases import trace_files
from message_cases.case import Case, calls, programs, readings

Row = dict[str, Any]

TRACES = calls(
    """
trace().step(5)
trace().simulate(0)
trace().simulate("40MiB")
trace().simulate(1 << 20, recoup.SimulationOptions(policy="nothing"))
trace().simulate(1 << 20, policy="lru")
trace().simulate(1 << 20, recoup.Options())
trace().simulate(1 << 20, recoup.SimulationOptions(noise=(1, 900)))
trace().simulate(1 << 20, recoup.SimulationOptions(noise=(1, 30), cost_model="bytes"))
trace().simulate(1 << 20, recoup.SimulationOptions(spill="none"))
trace().order(traversal="random")
trace().order(long_life="random")
trace().reordered([2, 1, 0])
trace().reordered([0])
trace().reordered([0, 1, 77])
two_steps().reordered([1, 0])
draws().reordered([1, 0])
writes().reordered([0, 2, 1])
fills().reordered([0, 2, 1])
asks().reordered([2, 0, 1])
recoup.offline.optimum.optimum(trace(), 1 << 20, time_limit=0)
recoup.offline.optimum_steady.steady_bound(trace(), 1, None, fraction=2)
recoup.offline._C.TraceBuilder().add_event("nothing", 0, 0)
recoup.offline.trace_steps.changed(trace(), op_copies=[])
recoup.Trace.read("not-there.rtrace")
trace().write("no/such/folder.rtrace")
""",
    light=False,
)

SIMULATED = programs("""
print(trace_of("outside", "an op").simulate(512).reason)
---
lost = trace_of("outside", "an op", "an eviction", "a loss", "an op")
print(lost.simulate(4096, recoup.SimulationOptions(small_result_bytes=0)).reason)
""")

DTR = programs("""
program = recoup.offline._C.DtrProgram()
program.add_constant(-1)
---
program = recoup.offline._C.DtrProgram()
program.hold(3)
---
program = recoup.offline._C.DtrProgram()
a = program.add_constant(64)
program.release(a)
program.release(a)
---
program = recoup.offline._C.DtrProgram()
program.add_op("f", -1, [program.add_constant(64)], [])
---
program = recoup.offline._C.DtrProgram()
program.add_op("f", 1, [program.add_constant(64)], [(64, 7)])
---
program = recoup.offline._C.DtrProgram()
program.add_op("f", 1, [program.add_constant(64)], [(-5, -1)])
---
program = recoup.offline._C.DtrProgram()
program.add_op("f", 1, [program.add_constant(64)], [(5, 0)])
---
program = recoup.offline._C.DtrProgram()
program.add_constant(64)
print(program.simulate(policy="dtr", budget_bytes=10, max_time_ratio=2.0)["reason"])
---
program = recoup.offline._C.DtrProgram()
program.simulate(policy="none", budget_bytes=10, max_time_ratio=2.0)
""")


def log(*rows: Row | list[Any] | str) -> str:
    return "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in rows)


CONSTANT = {"INSTRUCTION": "CONSTANT", "NAME": "a"}


def call(**changes: Any) -> Row:
    row = {"INSTRUCTION": "CALL", "NAME": "f", "ARGS": ["a"], "RESULT": ["b"], "TIME": "1"}
    return row | changes


def size(value: object, name: object = "a") -> Row:
    return {"INSTRUCTION": "MEMORY", "NAME": name, "MEMORY": value}


LOGS = {
    "not JSON": "hello",
    "not an object": log([1]),
    "lists that are nested too deeply": "[" * 100_000,
    "an instruction without a name": log({"INSTRUCTION": "CONSTANT"}),
    "an unknown instruction": log({"INSTRUCTION": "SING"}, CONSTANT),
    "a name that is a number": log(size(1, 7)),
    "a name that is too long": log(size(1, "a" * 2000)),
    "a size that is a word": log(size("large")),
    "a size below 0": log(size("-1")),
    "a size above the maximum": log(size(1 << 60)),
    "sizes whose sum is too large": log(*[size(1 << 47)] * 2049),
    "arguments that are not a list": log(CONSTANT, call(ARGS=3), CONSTANT),
    "an argument that is a number": log(CONSTANT, call(ARGS=[3]), CONSTANT),
    "a written argument that does not exist": log(CONSTANT, call(MUTATE=[4]), CONSTANT),
    "a view of an argument that does not exist": log(
        CONSTANT, {"INSTRUCTION": "ALIAS", "NAME": "b", "ALIAS": 1 << 30}, call(), CONSTANT
    ),
    "a line without an end": log("[" + " " * (1 << 20)),
}


PACKED = {"not a gzip file": "hello", "a truncated file": gzip.compress(b"hello" * 99)[:-12]}

LAYOUTS = calls("""
plan([("a", 0, 1, 64)], planner="serch")
plan([("a", 0, 1, 64)], capacity=32)
plan(crowd(), capacity=48, node_limit=1)
plan(holes(), capacity=10, planner="first-fit")
plan([("a", 0, 1, 64)], capacity="none")
plan([("a", 0, 1, 64)], alignment=48)
plan([("a", 0, 1, 64)], time_limit=-1)
plan([("a", 0, 1, 64)], node_limit=-1)
plan([("a", 0, 1 << 70, 64)])
plan([("a", 1, 1, 64)])
plan([("a", 0, 1, -64)])
plan([("a", 0, 1, 1 << 61), ("b", 0, 1, 1 << 61)])
plan([("a", 0, 1, 64)], ops=[("relu", 0, [7], [])])
plan([("a", 0, 1, 64)], ops=[("relu", 5, [0], [])])
plan([("a", 0, 2, 64), ("b", 1, 3, 64)], ops=[("relu", 1, [0], [(1, 1)])])
recoup.layout.planers
""")

CSVS = {
    "an empty file": "",
    "another header": "name,from,to,size\n",
    "a line without its end": "id,lower,upper,size\na,0,1,64",
    "three fields": "id,lower,upper,size\na,0,1\n",
    "two fields": "id,lower,upper,size\na,0\n",
    "a word": "id,lower,upper,size\na,0,1,large\n",
    "a number of 80 bits": f"id,lower,upper,size\na,0,1,{1 << 80}\n",
    "no id": "id,lower,upper,size\n,0,1,64\n",
    "a lifetime that ends before it begins": "id,lower,upper,size\na,1,0,64\n",
    "a size below 0": "id,lower,upper,size\na,0,1,-64\n",
    "an id that occurs twice": "id,lower,upper,size\na,0,1,64\na,0,1,64\n",
    "a long line": f"id,lower,upper,size\n{'a' * (1 << 21)},0,1,64\n",
}


SECTIONS: dict[str, list[Case]] = {
    "Recordings and simulations": TRACES + SIMULATED,
    "Logs of the DTR authors": readings('recoup.read_dtr_log("a.log")', LOGS)
    + readings('recoup.read_dtr_log("a.log.gz")', PACKED)
    + DTR,
    "Layouts": LAYOUTS + readings('recoup.layout.read_csv("a.csv")', CSVS),
    "Damaged recordings": trace_files.cases(),
}
