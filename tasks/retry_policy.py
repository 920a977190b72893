"""When to try again: budgets and pauses as pure functions. Seconds everywhere; chance comes in as `jitter`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from db.delivery_rules import ProviderTraits

_JITTER = 0.1  # +-10 %: mails that failed together come back apart
_LOSS_FRACTION = 1 / 12  # 60 s -> 5 s: a lost lease says nothing about the mail, so it comes back sooner
_LOSS_SPREAD = 0.5  # wide, so that the neighbours of a mail that kills workers part from it
_AWAY_FRACTIONS = (1 / 12, 1 / 4, 1.0)  # a provider that is away is often back within seconds


def _uniform() -> float:
    return random.uniform(-1.0, 1.0)  # noqa: S311 (spreads load, guards nothing)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The budgets of one deployment. `jitter` answers in [-1, 1]."""

    max_attempts: int
    backoff: tuple[float, ...]
    unknown_budget: int
    unknown_backoff: tuple[float, ...]
    evidence_window: float
    providers: tuple[ProviderTraits, ...]
    jitter: Callable[[], float] = field(default=_uniform, compare=False)

    def after_transient(self, attempt_count: int) -> float:
        """After the `attempt_count`-th attempt that said "not now": 60, 300, 900, 900, … +-10 %."""
        return self._spread(step(self.backoff, attempt_count), _JITTER)

    def after_refusal(self) -> float:
        """After a refusal that says nothing about this mail, when its provider is not paused for it."""
        return self._spread(self.backoff[0], _JITTER)

    def after_loss(self, lost_count: int) -> float:
        """After the `lost_count`-th lease that ran out: 5, 10, 20, … +-50 %, at most the last backoff."""
        wait = self.backoff[0] * _LOSS_FRACTION * 2.0 ** min(lost_count - 1, 16)
        return self._spread(min(wait, self.backoff[-1]), _LOSS_SPREAD)

    def check_again(self, provider: str, *, checks: int, replays: int) -> float | None:
        """Until the next look-up or replay of an unknown outcome; None when only the evidence window's end can help.

        `checks` counts the leases since the open hand-over, `replays` the hand-overs that repeated it.
        """
        traits = next((known for known in self.providers if known.name == provider), None)
        if traits is None:
            return None
        may_replay = traits.replay_window > 0 and replays < self.unknown_budget
        if may_replay or traits.can_look_up:
            return self._spread(step(self.unknown_backoff, checks + 1), _JITTER)
        return None

    def pauses(self, kind: str) -> tuple[float, ...]:
        """How long a provider rests after its first, second, … refusal in a row; the last repeats."""
        if kind == "away":
            return tuple(self.backoff[0] * part for part in _AWAY_FRACTIONS) + self.backoff[1:2]
        return self.backoff

    def _spread(self, seconds: float, share: float) -> float:
        return seconds * (1.0 + share * self.jitter())


def step(steps: Sequence[float], count: int) -> float:
    """The `count`-th step, counted from 1; the last repeats."""
    return steps[min(max(count, 1), len(steps)) - 1]
