"""Whole trainings in a budget compute the bits of plain PyTorch.

A budget is a fraction of the unbudgeted peak, which a run in a huge budget measures. The least
feasible budget depends on the net; all feasible ones must give equal bits, and char GPT and the
ResNet must be feasible down to half of their peak.
"""

from typing import Any

import pytest

import recoup
from recoup.bench.nets.net import Net
from recoup.bench.nets.tiny import NETS, net_named
from train import (
    HUGE,
    PAIRS,
    VARIANTS,
    Result,
    Variant,
    assert_bits_equal,
    train,
    variant_named,
)

STEPS = 2
STEPS_OF_LISTS = 5  # the third equal step is the first that has a list
MUST_FIT_AT_HALF = ("char_gpt", "resnet")
BISECTIONS = 2  # from half of the peak towards 0, to an eighth of the peak
SLOW_BISECTIONS = 4

# Plans that are made on a thread come into force at a time that varies.
WAIT = "planned, waited for"
POLICIES = (*(policy.name for policy in recoup.policies()), WAIT)


def options_of(policy: str) -> dict[str, Any]:
    return {"policy": "planned", "planning": "wait"} if policy == WAIT else {"policy": policy}


LISTED = (
    ("char_gpt", "accumulation_and_clipping"),
    ("resnet", "sgd_momentum"),
    ("unet", "ema"),
    ("bert", "bf16_autocast"),
    ("gpt2", "tied_weights"),
    ("gpt2", "checkpoint"),
    ("bilstm", "adamw_foreach"),
)


class Case:
    """One net trained in one way: the plain result, and the unbudgeted peak."""

    def __init__(self, net: Net, variant: Variant, **options: Any) -> None:
        self.net, self.variant, self.options = net, variant, options
        self.steps = STEPS_OF_LISTS if options.get("policy") == "planned" else STEPS
        self.plain = train(net, variant, self.steps, model_inside=options.get("model_inside", True))
        unpressured = train(net, variant, self.steps, HUGE, **options)
        assert_bits_equal(unpressured, self.plain)
        self.peak_bytes: int = unpressured.stats.peak_bytes

    def try_fraction(self, fraction: float) -> Result | recoup.OutOfBudgetError:
        """Trains in that fraction of the peak; a feasible result must be equal."""
        budget = int(self.peak_bytes * fraction)
        try:
            result = train(self.net, self.variant, self.steps, budget, **self.options)
        except recoup.OutOfBudgetError as error:
            return error.with_traceback(None)  # its frames hold tensors of the failed run
        assert_bits_equal(result, self.plain)
        assert result.stats.peak_bytes <= budget
        return result

    def check_fraction(self, fraction: float) -> None:
        result = self.try_fraction(fraction)
        if isinstance(result, recoup.OutOfBudgetError):
            pytest.fail(f"infeasible at {fraction:.0%} of {self.peak_bytes:,} bytes: {result}")

    def approach_least(self, bisections: int) -> float:
        """Bisects towards the least feasible fraction; feasible ones on the way must be equal."""
        feasible, infeasible = 0.5, 0.0
        for _ in range(bisections):
            fraction = (feasible + infeasible) / 2
            if isinstance(self.try_fraction(fraction), recoup.OutOfBudgetError):
                infeasible = fraction
            else:
                feasible = fraction
        return feasible


@pytest.mark.parametrize(("net", "variant"), PAIRS, ids=lambda name: name)
def test_a_budget_changes_no_bit(net: str, variant: str) -> None:
    # Some models are made before the scope, so that the budget is charged for them.
    outside = PAIRS.index((net, variant)) % 2 == 1
    case = Case(net_named(net), variant_named(variant), model_inside=not outside)
    case.check_fraction(1.0)
    # A program with its own checkpoints has already dropped most of what recoup could evict.
    must_fit = case.try_fraction if variant.startswith("checkpoint") else case.check_fraction
    must_fit(0.7)
    (case.check_fraction if net in MUST_FIT_AT_HALF else case.try_fraction)(0.5)
    case.approach_least(BISECTIONS)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_changes_a_bit(policy: str) -> None:
    case = Case(net_named("char_gpt"), variant_named("plain"), **options_of(policy))
    for fraction in (0.9, 0.7, 0.5):
        case.check_fraction(fraction)
    case.approach_least(BISECTIONS)


# Steps that repeat, of nets whose costs the lists lower.
@pytest.mark.parametrize(("net", "variant"), LISTED, ids=lambda name: name)
def test_eviction_lists_change_no_bit(net: str, variant: str) -> None:
    options = {**options_of(WAIT), "cost_model": "bytes"}
    case = Case(net_named(net), variant_named(variant), **options)
    followed = 0
    for fraction in (0.7, 0.55):
        result = case.try_fraction(fraction)
        followed += result.stats.followed_steps if isinstance(result, Result) else 0
    assert followed > 0


def test_every_variant_has_a_pair() -> None:
    assert {variant for _, variant in PAIRS} == {variant.name for variant in VARIANTS}


def test_half_the_peak_needs_replays() -> None:
    case = Case(net_named("char_gpt"), variant_named("plain"))
    result = case.try_fraction(0.5)
    assert isinstance(result, Result)
    assert result.stats.replays > 0
    assert result.stats.evictions > 0


def test_another_seed_is_detected() -> None:
    net, variant = net_named("char_gpt"), variant_named("plain")
    with pytest.raises(AssertionError, match=r"step 0 loss 0: 1 of 1 elements differ"):
        assert_bits_equal(train(net, variant, 1, seed=1), train(net, variant, 1, seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_every_net_variant_and_policy(net: Net, variant: Variant, policy: str) -> None:
    case = Case(net, variant, **options_of(policy))
    case.check_fraction(1.0)
    for fraction in (0.9, 0.8, 0.7, 0.6, 0.5):
        case.try_fraction(fraction)
    case.approach_least(SLOW_BISECTIONS)
