"""Attributes of PyTorch that are replaced while a scope is active, and restored afterwards."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import recoup
from patched import rows_of_scopes
from recoup._patching.patches import Patches, Replacement, hide


def patched_attributes() -> list[tuple[Any, str]]:
    return [(row.owner, row.name) for row in rows_of_scopes()]


def test_originals_are_restored_after_the_scope() -> None:
    missing = object()
    attributes = patched_attributes()
    before = [vars(owner).get(name, missing) for owner, name in attributes]
    seen = [getattr(owner, name, missing) for owner, name in attributes]
    with recoup.budget("64MiB"):
        inside = [getattr(owner, name, missing) for owner, name in attributes]
    after = [vars(owner).get(name, missing) for owner, name in attributes]
    assert all(a is b for a, b in zip(before, after, strict=True))
    for (_, name), old, new in zip(attributes, seen, inside, strict=True):
        if old is not missing:
            assert old is not new, name
        if new is not missing:
            assert new.__name__ == old.__name__
            assert new.__doc__ == old.__doc__


def test_originals_are_restored_after_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), recoup.budget("64MiB"):
        raise KeyboardInterrupt
    assert "data_ptr" not in vars(torch.Tensor)


class Owner:
    def own(self) -> int:
        return 1


class Heir(Owner):
    hidden = 3


def plus_one(original: Callable[..., int]) -> Callable[..., int]:
    return lambda *args: original(*args) + 1


def test_patches_count_their_users_and_restore_inherited_attributes() -> None:
    patches = Patches(
        [
            Replacement(Heir, "own", plus_one),
            Replacement(Heir, "hidden", hide),
            Replacement(Heir, "absent", plus_one, "no class has it"),
        ]
    )
    patches.install("first")
    patches.install("second")
    patches.install("second")
    assert (Heir().own(), hasattr(Heir, "hidden"), hasattr(Heir, "absent")) == (2, False, False)
    patches.remove("second")
    patches.remove("second")
    assert Heir().own() == 2
    patches.remove("first")
    assert (Heir().own(), Heir.hidden, "own" in vars(Heir)) == (1, 3, False)


def test_a_later_patch_by_other_code_stays() -> None:
    class Other(Owner): ...

    patches = Patches([Replacement(Other, "own", plus_one)])
    patches.install("user")
    Other.own = theirs = plus_one(Other.own)  # type: ignore[method-assign]
    patches.remove("user")
    assert Other.own is theirs


def test_a_replacement_is_made_once_for_each_original() -> None:
    class Other(Owner): ...

    seen: list[object] = []

    def note(original: Callable[..., int]) -> Callable[..., int]:
        seen.append(original)
        return plus_one(original)

    patches = Patches([Replacement(Other, "own", note)])
    for _ in range(2):
        patches.install("user")
        assert Other().own() == 2
        patches.remove("user")
    assert seen == [Owner.own]
    Other.own = theirs = plus_one(Other.own)  # type: ignore[method-assign]
    patches.install("user")
    assert Other().own() == 3
    patches.remove("user")
    assert Other.own is theirs and seen == [Owner.own, theirs]


def test_a_failed_maker_leaves_no_patch() -> None:
    def fail(original: object) -> object:
        raise LookupError

    patches = Patches([Replacement(Owner, "own", plus_one), Replacement(Heir, "hidden", fail)])
    with pytest.raises(LookupError):
        patches.install("user")
    assert Owner().own() == 1
