"""A budget's scope between two hooks of a framework that has no place for a `with` block."""

from typing import Any

import recoup


class HeldScope:
    """A scope that is open from `enter` to `leave`; each `enter` is a new run."""

    def __init__(self, budget: int | str, **options: Any) -> None:
        """Takes the arguments of `recoup.budget`, and raises the same errors before training."""
        self._budget = recoup.budget(budget, **options)
        self._open = False
        self.run: recoup.Run | None = None
        """The last run; None before the first."""

    def enter(self) -> None:
        """Opens the scope; first leaves one that a restarted training has left open."""
        self.leave()
        self.run = self._budget.__enter__()
        self._open = True

    def leave(self, error: BaseException | None = None) -> bool:
        """Closes the scope and returns whether it was open. Raises as the end of a `with` block.

        error: the exception that ended the training; None if there was none.
        """
        was, self._open = self._open, False
        if was:
            kind = None if error is None else type(error)
            self._budget.__exit__(kind, error, None if error is None else error.__traceback__)
        return was

    def metrics(self) -> dict[str, float]:
        """Metrics for a framework's logger; empty while the scope is not open."""
        if self.run is None or not self._open:
            return {}
        stats = self.run.stats()
        return {
            "recoup_budget_bytes": stats.budget_bytes,
            "recoup_peak_bytes": stats.peak_bytes,
            "recoup_evictions": stats.evictions,
            "recoup_replays": stats.replays,
            "recoup_replay_time_ratio": stats.replay_ns / max(stats.op_ns, 1),
        }
