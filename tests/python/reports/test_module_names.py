"""Note [Naming runs no code of the program], in module_names.py."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import recoup
from recoup._patching import module_names
from recoup.bench.flat_options import split


def test_naming_calls_no_function_mode() -> None:
    class Noise(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(getattr(function, "__name__", "?"))
            torch.rand(1)
            return function(*args, **(kwargs or {}))

    def train_noisily(**options: Any) -> tuple[list[str], list[float]]:
        seen.clear()
        torch.manual_seed(0)
        with recoup.budget("64MiB", **split(options)):
            model = nn.Linear(3, 3)
            optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
            with Noise():
                for _ in range(2):
                    optimizer.zero_grad()
                    functional.dropout(model(torch.ones(3))).sum().backward()
                    optimizer.step()
            return list(seen), [*model.weight.flatten().tolist(), torch.rand(1).item()]

    seen: list[str] = []
    assert train_noisily(profile="modules") == train_noisily()


@pytest.mark.parametrize("name", ["named_modules", "named_parameters", "named_buffers"])
@pytest.mark.parametrize("outcome", ["draws", "raises", "interrupts", "yields nonsense"])
def test_naming_calls_no_overridden_method_of_a_module(name: str, outcome: str) -> None:
    def overridden(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if outcome == "draws":
            self.extra = nn.Parameter(torch.randn(3))
        elif outcome == "raises":
            raise ValueError(name)
        elif outcome == "interrupts":
            raise KeyboardInterrupt
        return iter([(1, 2, 3), ([], torch.ones(1))])

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    setattr(Odd, name, overridden)
    torch.manual_seed(0)
    with recoup.budget("64MiB", profile="modules") as run:
        model = Odd()
        optimizer = torch.optim.SGD(model.inner.parameters(), 0.1)
        model(torch.ones(3)).sum().backward()
        optimizer.step()
        after = torch.rand(1).item()
        named = {row.name for row in run.holders(each=True)}
    assert {"inner.weight", "inner.bias"} <= named
    assert list(model._parameters) == []
    torch.manual_seed(0)
    nn.Linear(3, 3)
    assert torch.rand(1).item() == after


def test_naming_does_not_read_the_gradient_of_a_non_leaf_parameter() -> None:
    with recoup.budget("64MiB", profile="modules") as run, warnings.catch_warnings():
        warnings.simplefilter("error")
        model = nn.Linear(3, 3)
        meta = torch.ones(3, 3, requires_grad=True)
        model._parameters["weight"] = meta * 2  # type: ignore[assignment]
        model(torch.ones(3)).sum().backward()
        torch.optim.SGD([meta], 0.1).step()
        assert any(row.name == "bias" for row in run.holders(each=True))


def test_modules_made_in_a_loop_make_a_bounded_number_of_names() -> None:
    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.ReLU()(x)  # type: ignore[no-any-return]

    with recoup.budget("64MiB", profile="modules") as run:
        model, x = nn.Sequential(nn.Linear(3, 3), Makes()), torch.randn(2, 3)
        for _ in range(50):
            model(x)
            nn.Tanh()(x)
        before = len(module_names.MODULES._names)
        for _ in range(200):
            model(x)
            nn.Tanh()(x)
        assert len(module_names.MODULES._names) == before
        modules = {row.module for row in run.work()}
    assert {"Sequential.1.ReLU", "Tanh"} <= modules


def test_a_failed_step_ends_for_other_optimizers_too() -> None:
    def fail() -> float:
        raise ValueError("on purpose")

    with recoup.budget("64MiB", profile="timeline") as run:
        model = nn.Linear(8, 8)
        failing = torch.optim.SGD(model.parameters(), 0.1)
        with pytest.raises(ValueError, match="on purpose"):
            failing.step(fail)
        del failing
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            model(torch.randn(4, 8)).pow(2).sum().backward()
            torch.randn(1000).cos()
            optimizer.step()
    cosines = [each.module for each in run.timeline() if "cos" in each.name]
    assert cosines == ["", ""]
