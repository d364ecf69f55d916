"""Replacements in modules that are loaded while a scope is open, or never."""

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from recoup._patching.late_patches import LatePatches, LateReplacement

MODULE = "recoup_late_module"


def plus_one(original: object) -> object:
    return lambda self: original(self) + 1  # type: ignore[operator]


@pytest.fixture
def patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LatePatches]:
    (tmp_path / f"{MODULE}.py").write_text(
        "class Owner:\n    def value(self):\n        return 1\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield LatePatches([LateReplacement(MODULE, "Owner", "value", plus_one)])
    sys.modules.pop(MODULE, None)
    assert sys.meta_path == before


def loaded() -> types.ModuleType:
    return __import__(MODULE)


def test_a_module_that_is_loaded_later_is_patched(patches: LatePatches) -> None:
    one, other = object(), object()
    patches.install(one)
    patches.install(other)
    patches.install(one)
    assert MODULE not in sys.modules
    owner = loaded().Owner()
    assert owner.value() == 2
    patches.remove(one)
    assert owner.value() == 2
    patches.forget(other)
    assert owner.value() == 1
    patches.remove(other)


def test_a_loaded_module_is_patched(patches: LatePatches) -> None:
    owner = loaded().Owner()
    user = object()
    patches.install(user)
    assert owner.value() == 2
    patches.remove(user)
    assert owner.value() == 1


def test_a_module_loaded_in_a_scope_is_normal_after_it(patches: LatePatches) -> None:
    user = object()
    patches.install(user)
    module = loaded()
    patches.remove(user)
    assert module.__spec__ is not None and module.__spec__.loader is module.__loader__
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")
    assert module.Owner().value() == 1


def test_a_module_that_fails_to_load_can_be_loaded_again(
    patches: LatePatches, tmp_path: Path
) -> None:
    file = tmp_path / f"{MODULE}.py"
    source = file.read_text(encoding="utf-8")
    file.write_text("raise ZeroDivisionError", encoding="utf-8")
    user = object()
    patches.install(user)
    with pytest.raises(ZeroDivisionError):
        loaded()
    file.write_text(source + "# and longer, so that no cache is taken for it\n", encoding="utf-8")
    assert loaded().Owner().value() == 2
    patches.remove(user)


def test_a_scope_loads_no_compiler() -> None:
    program = (
        "import sys, recoup, torch\n"
        "with recoup.budget('64MiB'):\n"
        "    torch.ones(8) + 1\n"
        "assert 'torch._inductor.output_code' not in sys.modules\n"
        "assert not any('late_patches' in type(each).__module__ for each in sys.meta_path)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
