"""Unknown keyword arguments: the error names the similar one."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import recoup
from recoup.hints import hint_keywords
from recoup.offline import _C

# A user remembers the arguments of a function that has fewer.
_FEW = 2


def _functions() -> Iterator[tuple[str, Callable[..., Any], list[str]]]:
    """The public functions, constructors and methods with more than a few keyword arguments."""
    found: dict[str, Any] = {}
    for name in recoup.__all__:
        public = getattr(recoup, name)
        if not callable(public):
            continue
        found[name] = public
        if inspect.isclass(public):
            methods = inspect.getmembers(public, inspect.isfunction)
            found |= {f"{name}.{each}": made for each, made in methods if each[0] != "_"}
    for name, function in found.items():
        try:
            kinds = inspect.signature(function).parameters.values()
        except ValueError:  # the constructor of a built-in class
            continue
        keywords = [each.name for each in kinds if each.kind is each.KEYWORD_ONLY]
        if len(keywords) > _FEW:
            yield name, function, keywords


# What only recoup makes, with all fields.
_ROWS = {
    name
    for name in recoup.__all__
    if dataclasses.is_dataclass(row := getattr(recoup, name))
    and row not in (recoup.Options, recoup.SimulationOptions)
}
_CHECKED = [each for each in _functions() if each[0] not in _ROWS]


def test_functions_are_found() -> None:
    assert {"budget", "Options", "SimulationOptions"} <= {name for name, *_ in _CHECKED}


@pytest.mark.parametrize(("name", "function", "keywords"), _CHECKED)
def test_a_misspelt_argument_is_named(
    name: str, function: Callable[..., Any], keywords: list[str]
) -> None:
    for keyword in keywords:
        with pytest.raises(TypeError) as caught:
            function(**{f"{keyword}x": 1})
        text = str(caught.value)
        assert text == f"{name}() has no argument '{keyword}x'; did you mean {keyword}?"


def test_a_field_of_options_is_located() -> None:
    with pytest.raises(TypeError, match=r"it is a field of recoup.Options: write options=recoup"):
        recoup.budget("64MiB", max_slowdown=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"it is a field of recoup.SimulationOptions: write recoup"):
        recoup.Trace(_C.TraceBuilder().build()).simulate(1, policy="dtr")  # type: ignore[call-arg]


def test_arguments_without_a_similar_one_are_listed() -> None:
    with pytest.raises(TypeError, match=r"no argument 'qqq'; its arguments are path, device"):
        recoup.trace("x", qqq=1)  # type: ignore[call-arg]


def test_functions_keep_their_names_and_results() -> None:
    @hint_keywords()
    def both(a: int, *, b: int = 2) -> tuple[int, int]:
        """Two numbers."""
        return a, b

    assert both(1) == (1, 2) and both(a=3, b=4) == (3, 4)
    assert both.__doc__ == "Two numbers." and list(inspect.signature(both).parameters) == ["a", "b"]
