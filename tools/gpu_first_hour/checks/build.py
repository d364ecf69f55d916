"""Builds recoup for this Python's PyTorch into FIRST_HOUR_BUILD, on all cores, with no network."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rows import report, settings

ROOT = Path(__file__).parents[3]


def run(*command: str | Path) -> float:
    """Seconds that the command took. Raises SystemExit if it fails, after printing its error."""
    print(shlex.join(map(str, command)), flush=True)
    start = time.perf_counter()
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(done.stdout, flush=True)
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "error" in line.lower()]
        print(f"{command[0]} failed: {(errors or ['see above'])[0][:300]}")
        sys.exit(1)
    return time.perf_counter() - start


def main() -> int:
    given = settings()
    build = Path(os.environ["FIRST_HOUR_BUILD"])
    jobs = int(subprocess.check_output([sys.executable, ROOT / "tools/parallel_jobs.py"]))
    defines = {
        "CMAKE_BUILD_TYPE": "Release",
        "Python_EXECUTABLE": sys.executable,
        "RECOUP_BUILD_TESTS": "OFF",
        "RECOUP_BUILD_EXAMPLES": "OFF",
        # Newer compilers may have more warnings.
        "RECOUP_WERROR": "OFF",
    }
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    run(
        "cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *flags,
        *shlex.split(os.environ.get("CMAKE_ARGS", "")),
    )  # fmt: skip
    report("configure", jobs=jobs)
    seconds = run("cmake", "--build", build, "--parallel", str(jobs))
    report("compile", seconds=seconds)
    if given["rehearsal"]:
        target = "recoup_test_device"
        seconds = run("cmake", "--build", build, "--target", target, "--parallel", str(jobs))
        report("test device", seconds=seconds)
    install(build)
    report_import(build / "site")
    return 0


def install(build: Path) -> None:
    site = build / "site"
    shutil.rmtree(site, ignore_errors=True)
    for component in ("cpp", "python"):
        run("cmake", "--install", build, "--prefix", site / "recoup", "--component", component)
    shutil.copytree(ROOT / "python/recoup", site / "recoup", dirs_exist_ok=True)


def report_import(site: Path) -> None:
    """Reports the properties of the built recoup."""
    program = "import recoup; print(recoup._C.with_cuda, recoup._C.hook)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(site)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        print(done.stdout)
        print(f"recoup cannot be imported: {done.stdout.strip().splitlines()[-1]}")
        sys.exit(1)
    with_cuda, hook = done.stdout.split()
    report("import", with_cuda=with_cuda, hook=hook)


if __name__ == "__main__":
    sys.exit(main())
