"""recoup._memory.sizes: parsing and formatting of sizes, and its errors."""

import itertools

import pytest

import recoup
from recoup._memory.sizes import format_bytes, missing_unit, parse_bytes
from recoup.bench.flat_options import split
from recoup.offline import _C, layout

UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_in_every_case(unit: str) -> None:
    for letters in itertools.product(*((c.lower(), c.upper()) for c in unit)):
        assert parse_bytes("3" + "".join(letters)) == 3 * UNITS[unit]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("1048576", 2**20),
        ("4GiB", 4 * 2**30),
        ("4 GiB", 4 * 2**30),
        ("  4GiB\n", 4 * 2**30),
        ("+4GiB", 4 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("0.5 KB", 500),
        ("007KB", 7000),
        # Exact beyond the precision of a float, and rounded down.
        ("9007199254740993B", 2**53 + 1),
        ("0.1GiB", 107374182),
        ("0.0000009765625KiB", 0),
        ("1.9B", 1),
    ],
)
def test_valid_texts(text: str, count: int) -> None:
    if count:
        assert parse_bytes(text) == count
    else:
        with pytest.raises(ValueError, match="not above 0"):
            parse_bytes(text)


@pytest.mark.parametrize("value", [10**30, "1" + "0" * 30, "9999999TiB", 2**62 + 1])
def test_sizes_above_any_machine_are_refused(value: int | str) -> None:
    with pytest.raises(ValueError, match="at most 4611686018427387904 bytes"):
        parse_bytes(value)


def test_numbers_of_any_length_are_refused() -> None:
    trace = recoup.Trace(_C.TraceBuilder().build())
    for options in ({"seed": 10**30}, {"max_depth": 10**30}, {"small_result_bytes": -1}):
        with pytest.raises(
            ValueError, match=f"{next(iter(options))} must be a whole number from [01]"
        ):
            recoup.budget("1MiB", **split(options))  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match=f"{next(iter(options))} must be a whole number from [01]"
        ):
            trace.simulate(1000, recoup.SimulationOptions(**options))
    with pytest.raises(TypeError, match=r"seed must be a whole number from 0 to .*; got float"):
        recoup.budget("1MiB", options=recoup.Options(seed=1.5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a budget in bytes must be a whole number from 1"):
        trace.simulate(10**30)
    with pytest.raises(ValueError, match="an op must be a whole number"):
        trace.reordered([10**30])
    assert trace.simulate(2**62, recoup.SimulationOptions(layout=False)).status == "ok"
    with pytest.raises(ValueError, match="upper of buffer 'a' does not fit in 64 bits"):
        layout.plan([layout.Buffer("a", 0, 10**30, 1)])
    with pytest.raises(ValueError, match="node_limit must be a whole number"):
        layout.plan([layout.Buffer("a", 0, 1, 1)], node_limit=10**30)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (4, "4GiB"),
        ("4", "4GiB"),
        (" 512 ", "512GiB"),
        (4096, "4096MiB"),
        (65535, "65535MiB"),
        *((value, None) for value in (65536, 10**9, "4GiB", "4B", "4k", "60%", "auto", 0, -4, "x")),
    ],
)
def test_a_small_budget_without_a_unit_gives_a_guess(value: int | str, meant: str | None) -> None:
    size = str(value).strip()
    asks = None if meant is None else f"a budget of {size} bytes; did you mean {meant}?"
    assert missing_unit(value) == asks


def test_a_small_budget_without_a_unit_gives_a_warning() -> None:
    with pytest.warns(recoup.RecoupWarning, match="of 4 bytes; did you mean 4GiB") as warned:
        recoup.budget(4, device="cpu")
    assert [each.filename for each in warned] == [__file__]
    with pytest.warns(recoup.RecoupWarning, match="a spill of 2 bytes; did you mean") as warned:
        recoup.budget("4MiB", device="cpu", spill=2)
    assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("count", [1, 4096, 2**62])
def test_whole_numbers_are_bytes(count: int) -> None:
    assert parse_bytes(count) == count


@pytest.mark.parametrize("value", [0, -1, "0", "0GiB", "0.0MB", "-1", "-4GiB"])
def test_sizes_below_one_byte_are_refused(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"is not above 0; it must be .*4GiB"):
        parse_bytes(value)


@pytest.mark.parametrize("value", [1.0, 0.0, 1e9, float("nan"), float("inf")])
def test_floats_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"is the float .*; it must be a whole number of bytes"):
        parse_bytes(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["4Gi", "4PB", "4bits", "4 gigabytes", "4P"])
def test_an_unknown_unit_is_named_and_the_known_ones_are_listed(text: str) -> None:
    with pytest.raises(ValueError, match=r"' is not a unit; .* B, KB, MB, GB, TB, KiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "GiB", "four", "1e9", "1e9B", "0x10", "1_000", "1,5GiB", "1.GiB", ".5GiB"),
        *("1 2GiB", "4GiB4", "--4GiB", "nan", "inf", "1" * 101),
        # an Arabic digit, which Python's `int` accepts
        "\u0664GiB",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as '4GiB'"):
        parse_bytes(text)


def test_a_fraction_needs_a_unit() -> None:
    with pytest.raises(ValueError, match="a fraction without a unit"):
        parse_bytes("1.5")


@pytest.mark.parametrize("value", [True, False, None, [1], b"4GiB"])
def test_values_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"budget (is|has) .*; it must be a whole number of bytes"):
        parse_bytes(value)  # type: ignore[arg-type]


def test_the_limit_itself_is_allowed() -> None:
    assert parse_bytes("1GiB", limit_bytes=2**30) == 2**30
    with pytest.raises(
        ValueError, match=r"at most .* 1073741824 bytes \(1\.0 GiB\); got '1025MiB'"
    ):
        parse_bytes("1025MiB", limit_bytes=2**30)


def test_the_error_names_the_argument() -> None:
    with pytest.raises(ValueError, match=r"^block_size 0 is not above 0; it must be"):
        parse_bytes(0, name="block_size")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (99 * 1024, "99.0 KiB"),
        (100 * 1024, "100 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (2**30, "1.0 GiB"),
        (-(2**30), "-1.0 GiB"),
        (5 * 2**40, "5.0 TiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text
