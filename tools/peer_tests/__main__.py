"""Runs test suites of other projects plainly and in scopes, and reports the differences.

Usage: python tools/peer_tests SUITE [--mode MODE ...] [-- argument of pytest ...]

SUITE is a test file or a folder of them. Each file runs in a process of its own, or with --together
all files in one. A test that hangs or crashes ends its process; another process continues with the
next test. Tests with a record in the folder of results are not repeated: remove the folder to start
again. The exit status is 1 if there are differences.
"""

import argparse
import signal
import sys
from pathlib import Path

import comparison
import modes
import records
from runner import Limits, run_files


def files_of(suite: Path) -> list[Path]:
    if suite.is_file():
        return [suite]
    found = {*suite.rglob("test_*.py"), *suite.rglob("*_test.py")}
    return sorted(found)


def groups_of(suite: Path, files: list[Path], together: bool) -> dict[str, list[Path]]:
    """The files that run in one process, by the process's name."""
    if together or suite.is_file():
        return {suite.stem: files}
    return {file.relative_to(suite).with_suffix("").as_posix(): [file] for file in files}


def arguments() -> argparse.Namespace:
    about, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="peer_tests", description=about, epilog=details.split("\n\n", 1)[1]
    )
    parser.add_argument("suite", type=Path)
    parser.add_argument(
        "--mode", nargs="+", choices=modes.MODES, default=["force"], help="default: force"
    )
    parser.add_argument("--out", type=Path, help="folder of results; default: build/peer/SUITE")
    parser.add_argument("--test-seconds", type=float, default=60, help="limit of one test")
    parser.add_argument(
        "--minutes", type=float, default=60, help="after these no test of the process begins"
    )
    parser.add_argument("--every", type=int, default=1, help="run each n-th test only")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; default: 1")
    parser.add_argument("--together", action="store_true", help="all files in one process")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    return parser.parse_args(given[:split], argparse.Namespace(pytest=given[split + 1 :]))


def main() -> int:
    # As on Ctrl-C: also ends the process of the suite.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = arguments()
    suite: Path = options.suite.resolve()
    files = files_of(suite)
    if not files:
        print(f"{suite} has no test files", file=sys.stderr)
        return 2
    root = suite if suite.is_dir() else suite.parent
    out: Path = (options.out or Path("build/peer") / suite.stem).resolve()
    out.mkdir(parents=True, exist_ok=True)
    limits = Limits(options.test_seconds, 60 * options.minutes, options.every, options.threads)
    comparisons = []
    for name, group in groups_of(suite, files, options.together).items():
        slug = name.replace("/", ".")
        for mode in modes.with_needs(options.mode):
            run_files(group, root, mode, out / slug, limits, options.pytest)
        plain = records.read(out / f"{slug}.{modes.PLAIN}.jsonl")
        for mode in options.mode:
            scoped = records.read(out / f"{slug}.{mode}.jsonl")
            comparisons.append(comparison.compare(name, mode, plain, scoped))
    text = comparison.table(comparisons)
    (out / "comparison.md").write_text(text, encoding="utf-8")
    print(text, end="")
    return int(any(one.differences for one in comparisons))


if __name__ == "__main__":
    sys.exit(main())
