"""The smallest training under compute-sanitizer, if the machine has it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rows import report, settings, skip

FOUND = 33  # exit status if it has found an error
TOOL = "compute-sanitizer"


def path_of_tool() -> str | None:
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [f"{folder}/bin" for folder in folders if folder]
    return shutil.which(TOOL) or shutil.which(TOOL, path=os.pathsep.join(places))


def main() -> int:
    tool = path_of_tool()
    if tool is None:
        skip(f"there is no {TOOL}: it comes with the CUDA toolkit")
    # Under the tool PyTorch keeps the tensors of a step until the process ends.
    given = json.dumps(settings() | {"steps": 1})
    program = str(Path(__file__).with_name("smallest.py"))
    done = subprocess.run(
        [tool, "--tool", "memcheck", "--error-exitcode", str(FOUND), "--report-api-errors", "no",
         sys.executable, program, given],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line]
    print(done.stdout[-3000:])
    report(TOOL, result=(said or ["no summary"])[-1].strip("= "), status=done.returncode)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
