"""The parts of `recoup verify`: digests, comparisons of elements, the search for an op."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from recoup._verify.bits import digest, pieces
from recoup._verify.compare import Difference, compare_elements, first_difference
from recoup._verify.investigation import Explanation, explain_digests
from recoup._verify.op_log import LoggedOp
from recoup._verify.origin import Cause, origin_of
from recoup._verify.stream import Item, Step, StreamReader, StreamWriter
from recoup._verify.words import difference_lines

# More bytes than one piece of a digest.
LARGE = torch.arange(70_000, dtype=torch.float64).reshape(7, 100, 100)

TENSORS: dict[str, Tensor] = {
    "floats": torch.arange(6.0).reshape(2, 3),
    "large": LARGE,
    "large rows": torch.arange(200_000.0).reshape(2, 100_000),
    "bfloat16": torch.arange(6.0).bfloat16(),
    "booleans": torch.tensor([True, False]),
    "complex": torch.arange(4.0).to(torch.complex64),
    "scalar": torch.tensor(3),
    "strided": torch.arange(6.0).reshape(2, 3).T,
    "expanded": torch.ones(3, 1).expand(3, 4),
    "sparse": torch.eye(3).to_sparse(),
    "rows": torch.eye(3).to_sparse_csr(),
    "columns": torch.eye(3).to_sparse_csc(),
    "quantized": torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.qint8),
    "quantized, other scale": torch.quantize_per_tensor(torch.arange(4.0) * 2, 1.0, 0, torch.qint8),
    "quantized by rows": torch.quantize_per_channel(
        torch.arange(4.0)[None], torch.tensor([0.5]), torch.tensor([0]), 0, torch.qint8
    ),
    "two tensors": TwoTensor(torch.ones(2), torch.zeros(2)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_digest_depends_on_type_shape_and_bits(name: str) -> None:
    tensor = TENSORS[name]
    assert digest(tensor) == digest(tensor.clone())
    others = [other for other in TENSORS if other != name]
    assert digest(tensor) not in {digest(TENSORS[other]) for other in others}


def test_every_element_counts() -> None:
    for index in (0, 9_999, 69_999):
        other = LARGE.clone()
        other.view(-1)[index] += 1
        assert digest(other) != digest(LARGE)


def test_a_digest_does_not_depend_on_strides() -> None:
    for tensor in (LARGE.transpose(0, 2), LARGE[::2], LARGE.flip(0)[:, 1:]):
        assert digest(tensor) == digest(tensor.contiguous())
        assert b"".join(pieces(tensor)) == tensor.numpy().tobytes()
    imaginary = torch.arange(4.0).to(torch.complex64).mul(1j)
    assert digest(imaginary.conj()) == digest(imaginary.conj().resolve_conj())


def test_rounding_is_distinguished_from_other_differences() -> None:
    exact = torch.linspace(-1, 1, 1001)
    near = exact + 100 * torch.finfo(torch.float32).eps
    found = compare_elements(exact, near)
    assert found.is_rounding and found.differing > 900 and found.count == 1001
    other = exact.clone()
    other[10] = 0.5
    found = compare_elements(exact, other)
    assert not found.is_rounding and found.differing == 1
    assert found.largest_error == pytest.approx((0.5 + 0.98) / 0.98)
    other[10] = math.nan
    found = compare_elements(exact, other)
    assert not found.is_rounding and found.largest_error == math.inf
    assert not compare_elements(torch.tensor([1, 2]), torch.tensor([1, 3])).is_rounding
    zeros = compare_elements(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert zeros.is_rounding and zeros.differing == 1 and zeros.largest_error == 0
    large = 1 << 60  # neighbors are the same number in float64
    assert not compare_elements(torch.tensor([large]), torch.tensor([large + 1])).is_rounding


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_other_numbers_are_no_rounding_in_any_type(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    one, other = torch.randn(100), torch.randn(100)
    assert not compare_elements(one.to(dtype), other.to(dtype)).is_rounding
    assert not compare_elements(one.to(dtype), torch.zeros(100, dtype=dtype)).is_rounding
    near = compare_elements(one.to(dtype), (one.to(dtype).double() * 1.002).to(dtype))
    assert near.is_rounding or dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_an_infinity_is_no_rounding_and_hides_none(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, 2.0, math.inf], dtype=dtype)
    found = compare_elements(one, torch.tensor([1.0, 2.0, 3.0], dtype=dtype))
    assert not found.is_rounding and found.largest_error == math.inf
    found = compare_elements(one, torch.tensor([1.5, 2.0, math.inf], dtype=dtype))
    assert not found.is_rounding and found.differing == 1
    assert found.largest_error == pytest.approx(1 / 3)


def test_numbers_that_are_not_a_number_differ_by_their_bits() -> None:
    one, other = (Item("loss", "", "0", "torch.float32", (), bits, "nan") for bits in "12")
    found = explain_digests(Difference(1, one, other))
    assert found.elements is not None and found.elements.differing == 1
    text = "\n".join(difference_lines(Difference(1, one, other), found))
    assert "nan in both runs, with other bits" in text and "a different computation" in text


def test_nothing_is_said_about_elements_that_were_not_compared() -> None:
    one, other = item("a", "1"), item("a", "2")
    text = "\n".join(difference_lines(Difference(1, one, other), Explanation()))
    assert "kind              unknown: the elements of the two runs were not compared" in text


def item(name: str, bits: str, kind: str = "parameter", shape: tuple[int, ...] = (2,)) -> Item:
    return Item(kind, "Net#0", name, "torch.float32", shape, bits)


def test_items_are_matched_by_name_or_by_place() -> None:
    mine = Step(1, (item("a", "1"), item("b", "2")))
    assert first_difference(mine, mine) is None
    assert first_difference(mine, Step(1, (item("b", "2"), item("a", "1")))) is not None
    wrapped = Step(1, (item("module.a", "1"), item("module.b", "3")))
    found = first_difference(mine, wrapped)
    assert found is not None and found.item.name == "b" and found.other == wrapped.items[1]
    more = Step(1, (*mine.items, item("c", "3")))
    found = first_difference(mine, more)
    assert found is not None and found.item.name == "c" and found.other is None
    found = first_difference(more, mine)
    assert found is not None and found.item.name == "c" and found.other is None


def test_a_stream_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    steps = [Step(n, (item("a", str(n)), item("b", "2", "buffer", ()))) for n in (1, 2)]
    with path.open("w", encoding="utf-8") as file:
        writer = StreamWriter(file, ["train.py"], "2.13.0")
        for step in steps:
            writer.add(step)
        writer.end(2, is_cut=True)
    reader = StreamReader(path)
    assert [reader.next(), reader.next(), reader.next()] == [*steps, None]
    assert reader.steps == 2 and reader.is_cut
    whole = path.read_text()
    path.write_text(whole.replace('"steps": 2', '"steps": null'))
    reader = StreamReader(path)
    with pytest.raises(ValueError, match="damaged"):
        [reader.next() for _ in range(3)]
    path.write_text(whole.rpartition('{"steps"')[0])
    reader = StreamReader(path)
    with pytest.raises(ValueError, match="incomplete"):
        [reader.next() for _ in range(3)]


def op(name: str, reads: str, writes: str, arguments: str = "", draws: bool = False) -> LoggedOp:
    return LoggedOp(name, "", False, False, tuple(reads), arguments, tuple(writes), draws)


REFERENCE = [op("mul", "x", "a"), op("drop", "a", "b", draws=True), op("add", "bx", "c", "1")]


@pytest.mark.parametrize(
    ("other", "cause", "index"),
    [
        ([op("mul", "x", "A"), op("drop", "A", "B"), op("add", "Bx", "C", "1")], Cause.RESULTS, 0),
        ([*REFERENCE[:1], op("drop", "a", "B", draws=True), op("add", "Bx", "C")], Cause.DRAWS, 1),
        ([*REFERENCE[:2], op("add", "bx", "C", "2")], Cause.ARGUMENTS, 2),
        ([*REFERENCE[:2], op("sub", "bx", "C", "1")], Cause.OPERANDS, 2),
        # An op that the result does not need may differ.
        ([op("exp", "x", "Z"), *REFERENCE[:2], op("add", "xb", "C", "1")], Cause.OPERANDS, 3),
    ],
)
def test_the_search_ends_at_the_first_op_with_known_operands(
    other: list[LoggedOp], cause: Cause, index: int
) -> None:
    found = origin_of(["C"], REFERENCE, other)
    assert found is not None
    assert (found.op, found.cause) == (other[index], cause)


def test_a_value_that_no_op_made_has_no_origin() -> None:
    assert origin_of(["D"], REFERENCE, [op("mul", "x", "a")]) is None
    assert origin_of(["C"], REFERENCE, [op("mul", "y", "C")]) is None
