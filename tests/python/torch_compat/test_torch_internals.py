"""Every use of PyTorch's internals is listed, with the versions in which it was seen to work."""

from torch_internals import MINOR, Use, is_there, listed, may_be_there, missing, uses


def text(found: set[Use]) -> str:
    return "\n".join(" ".join(use) for use in sorted(found))


def test_every_use_was_seen_to_work_with_this_version() -> None:
    """After the whole suite, `tests/python/script.py torch_internals --seen` lists new uses."""
    seen = {use for use, versions in listed().items() if MINOR in versions}
    seen = {use for use in seen if may_be_there(use)}
    used = {use for use in uses() if is_there(use)}
    assert used <= seen, f"not seen to work with PyTorch {MINOR}:\n{text(used - seen)}"
    assert seen <= used, f"listed, and not used or not there any more:\n{text(seen - used)}"


def test_a_missing_use_is_listed_for_another_version() -> None:
    strange = {use for use in uses() if not is_there(use)} - listed().keys()
    assert not strange, f"in no PyTorch that was tried:\n{text(strange)}"


def test_the_built_libraries_find_all_symbols() -> None:
    assert not missing()


def test_the_list_has_all_kinds() -> None:
    kinds = [kind for kind, _ in listed()]
    assert kinds.count("header") > 40
    assert kinds.count("symbol") > 100
    assert kinds.count("python") > 40
