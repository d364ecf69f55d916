"""A case: what triggers messages, in a process of its own, and what is said there."""

import dataclasses
import gc
import json
import os
import re
import shlex
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Said:
    """One message, as it is said."""

    kind: str
    """The type of an exception, the category of a warning, "note", "stderr" or "stdout"."""
    text: str
    place: str = ""
    """Of an exception that came through Python code of recoup: the file of the innermost."""


@dataclass(frozen=True)
class Case:
    """What triggers a message, or several."""

    shown: str
    """The code, or the command."""
    run: Callable[[], None]
    """Runs it, in a folder of its own."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """What is in that folder."""
    only: str = ""
    """A regular expression: of long outputs the lines that are meant."""
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: bool = True
    """Whether notes on errors are listed."""
    masked: bool = False
    """Whether all numbers are those of this machine, or of this run."""
    light: bool = False
    """Whether it leaves nothing behind, so that others may follow in its process."""


# ---- making cases ----

LONG_NAME = "n" * 250
"""NAME in a command: a file can have it, but not what is written and then becomes that file."""


def programs(text: str, **settings: Any) -> list[Case]:
    """Of Python: programs are parted by lines of three dashes."""
    parts = re.split(r"^---\n", textwrap.dedent(text), flags=re.MULTILINE)
    return [_program(part.strip("\n"), **settings) for part in parts if part.strip()]


def calls(text: str, **settings: Any) -> list[Case]:
    """Of Python: one in each line. Each raises, and leaves nothing behind."""
    lines = textwrap.dedent(text).strip().splitlines()
    return [_program(line, **{"light": True, **settings}) for line in lines if line]


def readings(call: str, contents: Mapping[str, str | bytes]) -> list[Case]:
    """Of files that are wrong: `call` reads "NAME", and each content is listed by what it is."""
    name = call.split('"')[1]
    return [
        _program(f"{call}  # {what}", files={name: content}, light=True)
        for what, content in contents.items()
    ]


def commands(text: str, **settings: Any) -> list[Case]:
    """Of a shell: one in each line."""
    lines = textwrap.dedent(text).strip().splitlines()
    return [_command(line, **settings) for line in lines if line]


def _program(code: str, **settings: Any) -> Case:
    return Case(code, lambda: _execute(code), **settings)


def _execute(code: str) -> None:
    import torch

    import recoup
    from message_cases import aids, report_aids, trace_aids

    names = {**vars(aids), **vars(trace_aids), **vars(report_aids)}
    exec(compile(code, "<case>", "exec"), {"recoup": recoup, "torch": torch, **names})


def _command(line: str, **settings: Any) -> Case:
    words = [LONG_NAME if word == "NAME" else word for word in shlex.split(line)]
    return Case(f"$ {line}", lambda: _call(words[1:]), **settings)


def _call(words: list[str]) -> None:
    """As the process of the command would go, from its first line to its exit handlers."""
    from message_cases import command_aids

    command_aids.run_to_the_end(words)


# ---- running them ----


_AT_ONCE = 2
_IN_A_PROCESS = 30


def all_said(cases: Sequence[Case]) -> list[list[Said]]:
    """What each case says, in copies of this process: one for each case that is not light."""
    with tempfile.TemporaryDirectory(prefix="recoup-messages-") as folder:
        folders = [Path(folder).resolve() / str(index) / "DIR" for index in range(len(cases))]
        running: set[int] = set()
        for batch in _batches(list(zip(cases, folders, strict=True))):
            child = os.fork()
            if child == 0:
                _run_and_end(batch)
            running.add(child)
            while len(running) >= _AT_ONCE:
                running.remove(os.wait()[0])
        while running:
            running.remove(os.wait()[0])
        return [_read(*each) for each in zip(cases, folders, strict=True)]


_Placed = tuple[Case, Path]


def _batches(cases: list[_Placed]) -> Iterator[list[_Placed]]:
    light = [each for each in cases if each[0].light]
    for first in range(0, len(light), _IN_A_PROCESS):
        yield light[first : first + _IN_A_PROCESS]
    yield from ([each] for each in cases if not each[0].light)


def _read(case: Case, here: Path) -> list[Said]:
    answer = here.parent / _ANSWER
    if not answer.exists():
        raise RuntimeError(f"this has ended without an answer:\n{case.shown}")
    found = json.loads(answer.read_text(encoding="utf-8"))
    said = [Said(kind, _plain(text, here), place) for kind, text, place in found]
    return [
        each
        for each in _lines(said, case.only)
        if each.text.strip() and (case.notes or each.kind != "note")
    ]


def _plain(text: str, here: Path) -> str:
    return text.replace(f"{here.parent}{os.sep}", "").replace(LONG_NAME, "NAME")


_ANSWER = "said.json"


def _lines(said: Iterable[Said], only: str) -> Iterator[Said]:
    for each in said:
        lines = each.text.splitlines()
        if only and each.kind != "exit code":
            lines = [line for line in lines if re.search(only, line)]
        yield dataclasses.replace(each, text="\n".join(lines))


def _run_and_end(cases: list[_Placed]) -> NoReturn:
    """In the child: it ends whatever happens."""
    failed = open(os.dup(2), "w")
    end = os._exit  # a case may replace it
    try:
        for case, here in cases:
            _run(case, here)
    except BaseException:
        traceback.print_exc(file=failed)
        failed.flush()
    end(0)


def _run(case: Case, here: Path) -> None:
    here.mkdir(parents=True)
    os.chdir(here)
    os.environ.update(case.environment)
    for name, content in case.files.items():
        data = content.encode() if isinstance(content, str) else content
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    said = _listen(case.run, here.parent)
    text = json.dumps([dataclasses.astuple(each) for each in said])
    (here.parent / _ANSWER).write_text(text, encoding="utf-8")


def _listen(run: Callable[[], None], folder: Path) -> list[Said]:
    said: list[Said] = []
    streams = [open(folder / name, "w+b", buffering=0) for name in ("stdout", "stderr")]
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream.fileno(), number)
    sys.stdout, sys.stderr = (open(i, "w", closefd=False, buffering=1) for i in (1, 2))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            run()
        except SystemExit as ending:
            if ending.code not in (None, 0):
                said.append(Said("exit code", str(ending.code)))
        except BaseException as error:
            said += _of_error(error)
            error.__traceback__ = None  # what its frames hold goes now, and is heard
        gc.collect()
        said += [Said(each.category.__name__, str(each.message)) for each in warned]
    for stream, name in zip(streams, ("stdout", "stderr"), strict=True):
        stream.seek(0)
        said.append(Said(name, stream.read().decode(errors="replace")))
    return said


def _of_error(error: BaseException) -> Iterator[Said]:
    yield Said(type(error).__name__, str(error), _place(error))
    for note in getattr(error, "__notes__", []):
        yield Said("note", note)


def _place(error: BaseException) -> str:
    package = ROOT / "python" / "recoup"
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    inside = [file for file in files if file.is_relative_to(package)]
    return inside[-1].relative_to(ROOT).as_posix() if inside else ""
