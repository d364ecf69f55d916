"""What recoup says of a run: its line, its report, what would have helped."""

from message_cases.case import Case, programs

REPORTS = programs("""
with recoup.budget("16MiB") as run:
    made = torch.ones(1 << 20).add(1)
    print(repr(run))
print(repr(run))
---
print(line_of_made_up_figures())
---
print(report_of_made_up_figures())
""")

HELP = programs("""
print_help(lambda: (kept := torch.ones(1 << 17).numpy(), changed(1), torch.ones(1 << 20)))
---
run, made = suspended()
print(*run.failures()[0].help, sep="\\n")
---
x = torch.ones(1 << 10)
try:
    with recoup.budget("1MiB") as run:
        x.add(1)
        run.set_budget(1024)
except recoup.OutOfBudgetError:
    print(*run.failures()[0].help, sep="\\n")
---
print_help(lambda: torch.ones(1 << 20), block_size="64KiB")
---
print(*help_of(asked_bytes=8 << 20, evictable_bytes=9 << 20, largest_window_bytes=7 << 20))
""")

# What a report says of compiled graphs that are not run again.
REASONS = programs("""
print(why_kept(given=[object()]))
---
with torch.utils._python_dispatch.TorchDispatchMode():
    print(why_kept(given=[]))
""")

PAGES = programs("""
for where, value, _ in wrong_reports():
    say_what_is_wrong(where, value)
""")

SECTIONS: dict[str, list[Case]] = {"Reports": REPORTS + HELP + REASONS + PAGES}
