"""Programs that tests start end in a fork of a loaded process as they do in a new Python."""

import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm_python

STATE = """
import os, sys, signal, threading
names = {k: v for k, v in globals().items() if k not in ("__builtins__", "__loader__")}
print(sorted(names), __name__, sys.argv, sys.path[:3], os.getcwd(), sys.orig_argv[1:])
print(sys.modules["__main__"].__dict__ is globals(), threading.active_count())
print(__spec__ and __spec__.name)
print(sys.stdin.encoding, sys.stdout.line_buffering, sys.stderr.errors, sys.stdout.errors)
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE), input())
print(sorted(os.environ.items()), sorted(os.listdir("/proc/self/fd")), os.getpgid(0))
"""
LOADED = 'import sys; print("torch" in sys.modules)'
PROGRAMS = {
    "state": STATE,
    "nothing": "",
    "a number": "import sys; sys.exit(7)",
    "a text": "import sys; sys.exit('the reason')",
    "an error": "def f():\n    return 1 / 0\ntry:\n    f()\nexcept ZeroDivisionError:\n    f()",
    "bad syntax": "print(1\n2)",
    "Ctrl-C": "import atexit\natexit.register(print, 'exit')\nraise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "aborts": "import os; os.abort()",
    "the end": """
import atexit, threading, time
class Last:
    def __del__(self):
        print("deleted")
last = Last()
atexit.register(print, "exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("main")
""",
    "a thread fails": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='t').start()",
    "a child": """
import os, subprocess, sys
child = os.fork()
if child == 0:
    print("child", flush=True)
    os._exit(3)
print(os.waitpid(child, 0)[1])
print(subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True, text=True).stdout)
""",
    "bits": """
import torch
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.Dropout())
net(torch.randn(4, 9)).sum().backward()
print([each.grad.sum().item().hex() for each in net.parameters()], torch.get_num_threads())
import recoup
with recoup.budget("1MiB") as run:
    print(torch.randn(100).sum().item().hex(), run.stats().peak_bytes)
""",
}


@pytest.fixture(autouse=True)
def installed() -> None:
    if sys.executable == warm_python.REAL:  # not in a process of pytest-xdist
        pytest.skip("starts processes as forks with pytest -n only")


def test_a_lasting_change_of_the_environment_gets_a_server_of_its_own() -> None:
    os.environ["KEPT_BY_A_LIBRARY"] = "1"
    try:
        assert result(sys.executable, "-c", LOADED)[1] == "False\n"
        warm_python.update()
        assert result(sys.executable, "-c", LOADED)[1] == "True\n"
    finally:
        del os.environ["KEPT_BY_A_LIBRARY"]
        warm_python.update()


def result(python: str, *words: str, **options: Any) -> tuple[int, str, str]:
    done = subprocess.run(
        [python, *words], capture_output=True, text=True, input="typed\n", timeout=120, **options
    )
    return done.returncode, done.stdout, done.stderr.replace(python, "PYTHON")


def both(*words: str, **options: Any) -> tuple[int, str, str]:
    real = result(warm_python.REAL, *words, **options)
    assert result(sys.executable, *words, **options) == real
    return real


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_in_a_new_python(name: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAMS[name])
    as_code = both("-c", PROGRAMS[name], "an argument", cwd=tmp_path)
    as_script = both("script.py", "an argument", cwd=tmp_path)
    both("-m", "script", "an argument", cwd=tmp_path)
    assert as_code[0] == as_script[0]


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    assert both("-m", "missing", cwd=tmp_path)[0] == 1


def test_a_fork_has_loaded_pytorch_and_a_new_python_has_not() -> None:
    assert result(sys.executable, "-c", LOADED)[1] == "True\n"
    assert result(warm_python.REAL, "-c", LOADED)[1] == "False\n"


def test_the_server_is_no_child_of_the_test_process() -> None:
    names = [
        Path(f"/proc/{child}/cmdline").read_text()
        for thread in Path("/proc/self/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    assert [name for name in names if "warm_server" in name] == []


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


@pytest.mark.parametrize(
    "options",
    [
        {"env": os.environ | {"OMP_NUM_THREADS": "2"}},
        {"env": {}},
        {"preexec_fn": limit_files},
        {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)},
        {"preexec_fn": lambda: os.umask(0o7)},
        {"start_new_session": True},
        {"process_group": 0},
    ],
)
def test_what_a_fork_would_not_inherit_needs_a_new_python(options: dict[str, Any]) -> None:
    assert result(sys.executable, "-c", LOADED, **options)[1] == "False\n"


def test_an_inherited_file_needs_a_new_python() -> None:
    number = os.dup(0)
    try:
        assert result(sys.executable, "-c", LOADED, pass_fds=(number,))[1] == "False\n"
    finally:
        os.close(number)


def test_options_folders_and_closed_files_need_a_new_python(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(LOADED)
    assert result(sys.executable, "-X", "dev", "-c", LOADED)[1] == "False\n"
    assert result(sys.executable, str(tmp_path))[1] == "False\n"
    assert result("sh", "-c", f"{sys.executable} -c '{LOADED}' 2>&-")[1] == "False\n"
    assert result(sys.executable, "missing.py", cwd=tmp_path)[0] == 2


def test_signals_and_the_end_of_the_caller_reach_the_program() -> None:
    code = "import os, time; print(os.getpid(), flush=True)\nwhile True: time.sleep(1)"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        command = [sys.executable, "-c", code]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            program = os.pidfd_open(int(process.stdout.readline()))
            process.send_signal(number)
            assert process.wait(60) == -number
            assert select.select([program], [], [], 60)[0], "the program goes on"
            os.close(program)
