"""A budget's scope between two hooks of a framework, where no `with` block can be."""

from typing import Any

import recoup


class HeldScope:
    """Open from `enter` to `leave`; each `enter` is a new run."""

    def __init__(self, budget: int | str, **options: Any) -> None:
        """The arguments of `recoup.budget`. Raises as it does, before anything is trained."""
        self._budget = recoup.budget(budget, **options)
        self._open = False
        self.run: recoup.Run | None = None
        """The last run; None before the first."""

    def enter(self) -> None:
        """Leaves first what a training that began again has left open."""
        self.leave()
        self.run = self._budget.__enter__()
        self._open = True

    def leave(self, error: BaseException | None = None) -> bool:
        """Whether it was open. Raises as the end of a `with` block does; `error` came out of it."""
        was, self._open = self._open, False
        if was:
            kind = None if error is None else type(error)
            self._budget.__exit__(kind, error, None if error is None else error.__traceback__)
        return was

    def metrics(self) -> dict[str, float]:
        """For a framework's logger; empty while it is not open."""
        if self.run is None or not self._open:
            return {}
        stats = self.run.stats()
        return {
            "recoup_budget_bytes": stats.budget_bytes,
            "recoup_peak_bytes": stats.peak_bytes,
            "recoup_evictions": stats.evictions,
            "recoup_replays": stats.replays,
            "recoup_replay_time_share": stats.replay_ns / max(stats.op_ns, 1),
        }
