"""Generates the exports of the stand-in's libraries from what an installed PyTorch imports.

    stubs.py TORCH_LIB TOOLKIT_INCLUDE OUT      (called by CMake)

For each NVIDIA library that PyTorch is linked with, OUT gets a C file of functions that the
stand-in does not implement, and a version script; and `libraries.cmake`, which names them.
"""

import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = "libcudart.so"
DRIVER = "libcuda.so.1"
NVIDIA = re.compile(r"lib(cu|nv|nccl)")
IMPLEMENTED = re.compile(r"RECOUP_(?:CUDA|DRIVER|BLAS|NCCL|NVML)_API[\s\w:*]*?\b(\w+)\(")
DRIVER_NAME = re.compile(rb"\0(cu[A-Z][A-Za-z0-9]+)(?=\0)")
DECLARED = re.compile(r"CUDAAPI\s+(cu\w+)\(")
NOT_SUPPORTED = 801  # cudaErrorNotSupported and CUDA_ERROR_NOT_SUPPORTED
FAILED = 1
DONE = 0


@dataclass
class Wanted:
    """What PyTorch imports from one library."""

    names: set[str] = field(default_factory=set)
    version: str = ""
    """The version node of the names, or an empty string."""


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(path: Path, which: str) -> list[str]:
    text = output("nm", "-D", "--with-symbol-versions", which, str(path))
    return [line.split()[-1] for line in text.splitlines() if line.strip()]


def implemented() -> set[str]:
    """Functions that the stand-in implements."""
    found: set[str] = set()
    for path in HERE.glob("*/*.cpp"):
        found |= set(IMPLEMENTED.findall(path.read_text()))
    return found


def owner_of(name: str, sonames: set[str]) -> str | None:
    """The library of a name without a version: the one whose name the function's name begins with.

    Otherwise the driver.
    """

    def stem(soname: str) -> str:
        return re.split(r"[._]", soname.removeprefix("lib"))[0].lower()

    fitting = [each for each in sonames if name.lower().startswith(stem(each))]
    fallback = DRIVER if re.match(r"cu[A-Z]", name) else None
    return max(fitting, key=lambda each: len(stem(each)), default=fallback)


def wanted_libraries(torch_lib: Path) -> dict[str, Wanted]:
    """Imports by soname. Raises LookupError for a name that fits no library."""
    paths = sorted(torch_lib.glob("*.so"))
    own = {name.split("@")[0] for path in paths for name in symbols(path, "--defined-only")}
    needed: set[str] = set()
    for path in paths:
        needed |= set(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", str(path))))
    libraries = {name: Wanted() for name in {DRIVER, *needed} if NVIDIA.match(name)}
    for path in paths:
        for symbol in symbols(path, "--undefined-only"):
            name, _, version = symbol.partition("@")
            if name in own or not NVIDIA.match("lib" + name.lstrip("_")):
                continue
            owner = version if version in libraries else owner_of(name, set(libraries))
            if owner is None:
                raise LookupError(
                    f"{path.name} wants {name}, which fits none of {sorted(libraries)}"
                )
            libraries[owner].names.add(name)
            libraries[owner].version = version or libraries[owner].version
    return libraries


def driver_names(torch_lib: Path, toolkit_include: Path) -> set[str]:
    """Driver functions that PyTorch looks up by name at run time."""
    said: set[str] = set()
    for path in torch_lib.glob("*.so"):
        said |= {name.decode() for name in DRIVER_NAME.findall(path.read_bytes())}
    return said & set(DECLARED.findall((toolkit_include / "cuda.h").read_text(errors="replace")))


def without_suffix(names: set[str]) -> set[str]:
    return names | {re.sub(r"_v\d$", "", name) for name in names}


def missing(torch_lib: Path, toolkit_include: Path) -> dict[str, set[str]]:
    """By library: functions of the runtime and the driver that the stand-in does not implement."""
    have = without_suffix(implemented())
    libraries = wanted_libraries(torch_lib)
    libraries[DRIVER].names |= driver_names(torch_lib, toolkit_include)
    runtime = next(each for name, each in libraries.items() if name.startswith(RUNTIME))
    return {
        RUNTIME: runtime.names - have,
        DRIVER: libraries[DRIVER].names - have,
    }


def answer_of(soname: str) -> int:
    """The return value of a stub."""
    if soname.startswith(("libcudart", "libcuda.")):
        return NOT_SUPPORTED
    return DONE if soname.startswith("libcublas") else FAILED


def write(soname: str, wanted: Wanted, have: set[str], out: Path) -> None:
    code = ['#define RECOUP_EXPORTED __attribute__((visibility("default")))']
    answer = answer_of(soname)
    code += [
        f"RECOUP_EXPORTED long {name}(void) {{ return {answer}; }}"
        for name in sorted(wanted.names - have)
    ]
    (out / f"{soname}.c").write_text("\n".join(code) + "\n")
    (out / f"{soname}.map").write_text(f"{wanted.version} {{ global: *; }};\n")


def main() -> None:
    torch_lib, toolkit_include, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    libraries = wanted_libraries(torch_lib)
    libraries[DRIVER].names |= driver_names(torch_lib, toolkit_include)
    have = without_suffix(implemented())
    groups: dict[str, list[str]] = defaultdict(list)
    for soname, wanted in libraries.items():
        write(soname, wanted, have, out)
        kind = next((k for k in (RUNTIME, DRIVER) if soname.startswith(k)), "others")
        groups[kind].append(soname)
    (out / "libraries.cmake").write_text(
        f"set(runtime_soname {groups[RUNTIME][0]})\n"
        f"set(driver_soname {groups[DRIVER][0]})\n"
        f"set(other_sonames {' '.join(sorted(groups['others']))})\n"
    )


if __name__ == "__main__":
    main()
