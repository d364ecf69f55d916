"""The tables and remarks of all nets as a Markdown page."""

from pathlib import Path

from recoup._reporting.files import write_atomically
from recoup._reporting.report import counted
from recoup.bench.harness.tables import markdown_lines
from recoup.bench.real.results import Plan, Results
from recoup.bench.real.summary import remarks, summaries
from recoup.bench.real.table import COLUMNS, cells, title


def write_page(plan: Plan, results: Results, path: Path) -> None:
    known = results.settings
    lines = [
        "# Results: nets of real size, compared with other allocators",
        f"`{results.command}` measured and wrote this: torch {known['torch']}, {known['threads']} "
        f"threads on {known['cores']} cores, huge pages: {known['huge_pages']}; runs of "
        f"{known['steps']} steps. Bits are equal to plain PyTorch's in all rows of recoup.",
    ]
    for summary in summaries(plan, results):
        rounds = len(summary.plain.runs)
        said = f"{title(summary)}; medians of {counted(rounds, 'round')}."
        lines += ["", f"## {summary.net}", said, ""]
        lines += markdown_lines(COLUMNS, (cells(summary, line) for line in summary.lines))
        lines += ["", *(f"- {said}" for said in remarks(summary))]
    write_atomically(path, "\n".join(lines) + "\n")
