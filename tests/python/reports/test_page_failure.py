"""The part of a page that describes how a run failed."""

from page_parser import Parsed
from page_reports import failed_report, gpt2_report
from recoup import page
from recoup._memory.sizes import format_bytes


def test_a_failure_is_shown_with_the_holders_of_the_memory() -> None:
    report = failed_report()
    refused = report["failures"][0]
    for render in (page.render, page.render_fragment):
        parsed = Parsed(render(report))
        assert "How it failed" in parsed.texts["h2"]
        code = "".join(parsed.texts["b"] + parsed.texts["code"])
        assert refused["type"] in code and f": {refused['message']}" in code and "OSError" in code
        request = dict(parsed.tables["the allocation that did not fit"][1:])
        assert request.pop("op") == "aten::mm" and request.pop("module") == "lm_head"
        assert list(request.values()) == list(map(format_bytes, refused["figures"].values()))
        assert set(refused["help"]) <= set(parsed.texts["li"])
        rows = parsed.tables["At the failure"][1:]
        assert sum(int(row[-1]) for row in rows) == sum(row["values"] for row in refused["rows"])
        largest = max(refused["rows"], key=lambda row: row["bytes"])
        by_module = parsed.tables["At the failure, by module"][1:]
        (alone,) = (row for row in by_module if row[0] == largest["module"])
        assert alone[1:3] == [largest["kind"], format_bytes(largest["bytes"])]
        assert sum(int(row[-1]) for row in by_module) == sum(int(row[-1]) for row in rows)
        (together,) = (row for row in by_module if row[0][0].isdecimal() and row[1] == "optimizer")
        states = [
            row
            for row in refused["rows"]
            if row["kind"] == "optimizer" and row["bytes"] < 0.05 * refused["charged_bytes"]
        ]
        assert together[0].startswith(f"{len(states)} modules")
        assert states[0]["module"] in together[0]
        assert together[2] == format_bytes(sum(row["bytes"] for row in states))
        assert "The chart ends where an allocation failed." in parsed.texts["p"]
    assert "How it failed" not in Parsed(page.render(gpt2_report())).texts["h2"]


def test_a_failure_without_modules_names_the_option_that_records_them() -> None:
    report = {**failed_report(), "step": None}
    refused = report["failures"][0]
    refused["rows"], refused["charged_bytes"] = None, 0
    parsed = Parsed(page.render(report))
    assert "module" not in dict(parsed.tables["the allocation that did not fit"])
    assert any('recoup.budget(profile="modules")' in text for text in parsed.texts["p"])
