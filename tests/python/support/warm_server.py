"""A process that has loaded PyTorch, and forks for each program that the `python` asks it to run.

warm_server.py ADDRESS PARENT PYTHON [MODULE]...
"""

import atexit
import builtins
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
from typing import Any

from warm_context import context


def serve(address: str, parent: int, python: str, modules: list[str]) -> None:
    """Serves in a child, whose number it prints, and returns.

    The child ends when the process `parent`, which started it, has ended. `python` is the
    `sys.executable` of the programs. It loads PyTorch and then the other modules.
    """
    for module in ("torch", *modules):
        importlib.import_module(module)
    own = context()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    server = os.fork()
    if server != 0:
        print(server, flush=True)
        os._exit(0)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the forks
    gc.collect()
    gc.freeze()  # otherwise each child would write to, and so copy, all objects
    alive = os.pidfd_open(parent)
    while alive not in select.select([listening, alive], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            os.close(alive)
            _attend(connection, own, python)
            return
        connection.close()


def _attend(connection: socket.socket, own: dict[str, object], python: str) -> None:
    """Runs one program in a child, whose end and signals it passes on."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("r") as reader:
        words, folder, variables, asked = json.loads(reader.readline())
    if asked != own:
        connection.sendall(b"no\n")
        os._exit(0)
    connection.sendall(b"yes\n")
    if not connection.recv(1):  # it passes on signals from now on
        os._exit(0)
    child = os.fork()
    if child == 0:
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        _become(words, folder, variables, python)
        return  # and exits as usual
    for file in (*files, 0, 1, 2):
        os.close(file)
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            break
        try:
            number = connection.recv(1)
        except OSError:  # it was killed before it had read the answer
            number = b""
        os.kill(child, number[0] if number else signal.SIGKILL)
        if not number:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    try:
        connection.sendall(f"{status}\n".encode())
    finally:
        os._exit(0)


def _become(words: list[str], folder: str, variables: dict[str, str], python: str) -> None:
    """Runs the program as a new Python would."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.orig_argv = [sys.executable, *words]
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    main.__annotations__ = {}
    sys.modules["__main__"] = main
    sys.executable = python
    path = sys.path[1:]  # without the folder of this file
    try:
        if words[0] == "-m":
            sys.path = [folder, *path]
            sys.argv = ["-m", *words[2:]]
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        elif words[0] == "-c":
            sys.path = ["", *path]
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), main.__dict__)
        else:
            sys.path = [os.path.dirname(os.path.realpath(words[0])), *path]
            sys.argv = words
            _run_script(words[0], main)
    except SystemExit:
        raise
    except BaseException as error:
        _end_with(error)


def _run_script(script: str, main: types.ModuleType) -> None:
    script = os.path.abspath(script)
    main.__file__ = script
    main.__cached__ = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    exec(code, main.__dict__)


def _end_with(error: BaseException) -> None:
    """As Python ends with an exception that the program does not handle."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    if isinstance(error, KeyboardInterrupt):
        sys.stdout.flush()
        atexit._run_exitfuncs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(1)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
