"""Arguments of `recoup.budget` and `Trace.simulate` as one flat dictionary, as sweeps make them."""

import dataclasses
from typing import Any

import recoup

_FIELDS = {field.name for field in dataclasses.fields(recoup.Options)}


def split(flat: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with the fields of `recoup.Options` in one, under `options`."""
    tuning = {name: value for name, value in flat.items() if name in _FIELDS}
    rest = {name: value for name, value in flat.items() if name not in _FIELDS}
    return {**rest, "options": recoup.Options(**tuning)} if tuning else rest
