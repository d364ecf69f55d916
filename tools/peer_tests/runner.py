"""Runs test files in one mode, in as many processes as needed."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import modes
import records
from records import CRASH, HANG, Record

HERE = Path(__file__).parent
# For imports and collection, in addition to the time of tests.
START_SECONDS = 300
TRACEBACK_LENGTH = 2000


@dataclass(frozen=True)
class Limits:
    test_seconds: float
    total_seconds: float
    every: int
    threads: int = 1
    """Threads of PyTorch in a process."""


def run_files(
    files: list[Path], root: Path, mode: str, stem: Path, limits: Limits, arguments: list[str]
) -> None:
    """Runs tests without a record; output files are named by `stem`, the mode and a suffix."""
    path = stem.with_name(f"{stem.name}.{mode}.jsonl")
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=short", "--no-header", "-W", "ignore",
        "-c", os.devnull, f"--rootdir={root}", "-p", "no:cacheprovider", "-p", "no:faulthandler",
        "-p", "peer_plugin",
    ]  # fmt: skip
    if any("torch.testing._internal" in file.read_text(encoding="utf-8") for file in files):
        command += ["-p", "pytorch_suites"]
    command += [*map(str, files), *arguments]
    environment = _environment(mode, path, stem, limits)
    while True:
        status, output = _run(command, environment, files[0].parent, limits)
        with path.with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(output)
        if not _record_the_lost(path, status, output):
            break
    if not path.exists():
        print(f"{stem.name}, {mode}: no test ran\n{output[-TRACEBACK_LENGTH:]}", file=sys.stderr)


def _environment(mode: str, path: Path, stem: Path, limits: Limits) -> dict[str, str]:
    scope = modes.SCOPES.get(mode, modes.Mode())
    own = {
        "PEER_MODE": mode,
        "PEER_RECORDS": str(path),
        "PEER_SECONDS": str(limits.test_seconds),
        "PEER_TOTAL": str(limits.total_seconds),
        "PEER_EVERY": str(limits.every),
        "RECOUP_TEST_AIDS": scope.aids,
        "OMP_NUM_THREADS": str(limits.threads),
        "MKL_NUM_THREADS": str(limits.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
    }
    if mode != modes.PLAIN:
        own["PEER_PLAIN"] = str(stem.with_name(f"{stem.name}.{modes.PLAIN}.jsonl"))
    if scope.needs:
        own["PEER_PEAKS"] = str(stem.with_name(f"{stem.name}.{scope.needs}.jsonl"))
    return os.environ | own


def _run(
    command: list[str], environment: dict[str, str], folder: Path, limits: Limits
) -> tuple[int, str]:
    """The exit status and the output. Also ends the process's children."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, text=True, errors="replace", start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(
                timeout=START_SECONDS + limits.total_seconds + limits.test_seconds
            )
        except subprocess.TimeoutExpired as expired:
            output = str(expired.output or "")
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return process.returncode, output


def _record_the_lost(path: Path, status: int, output: str) -> bool:
    """Records the test in which the process ended, if any; returns whether to run the others."""
    current = path.with_suffix(".current")
    if not current.exists():
        return False
    test = current.read_text(encoding="utf-8")
    current.unlink()
    if test not in records.read(path):
        traceback = path.with_suffix(".traceback").read_text(encoding="utf-8")
        outcome = HANG if traceback.startswith("Timeout") else CRASH
        said = traceback[:TRACEBACK_LENGTH] or output[-TRACEBACK_LENGTH:]
        error = f"exit status {status}\n{said}"
        records.append(path, Record(test, outcome, error=error))
    return True
