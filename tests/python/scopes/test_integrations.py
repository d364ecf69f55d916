"""recoup.integrations without its frameworks; tests/frameworks/ tests the callbacks."""

import subprocess
import sys

import pytest

import recoup.integrations


def test_a_framework_is_imported_only_on_access() -> None:
    code = (
        "import sys, recoup.integrations\n"
        "assert dir(recoup.integrations)\n"
        "print([name for name in ('transformers', 'lightning') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "package"), [("LightningBudget", "lightning"), ("TrainerBudget", "transformers")]
)
def test_a_missing_framework_is_named(name: str, package: str) -> None:
    code = (
        f"import sys\nsys.modules[{package!r}] = None\n"
        f"try:\n    from recoup.integrations import {name}\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == f"{name} needs the package {package}: pip install {package}\n"


def test_names() -> None:
    assert {"TrainerBudget", "LightningBudget"} <= set(dir(recoup.integrations))
    with pytest.raises(AttributeError, match="Budgets"):
        recoup.integrations.Budgets  # type: ignore[attr-defined]  # noqa: B018
