"""One total deadline for one piece of work, by a clock that counts through sleep."""

from __future__ import annotations

import time
from dataclasses import dataclass

# On Linux CLOCK_MONOTONIC stops while the machine sleeps and CLOCK_BOOTTIME goes on. Elsewhere (macOS, BSD)
# the system's CLOCK_MONOTONIC goes on itself, although time.monotonic() may read one that does not.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def now() -> float:
    """Seconds by a clock that counts through sleep; its start is arbitrary, so it means nothing elsewhere."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant of `now()` after which nothing more may happen."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(now() + seconds)

    def within(self, seconds: float) -> Deadline:
        """This deadline, or the one in `seconds` if that comes sooner."""
        return Deadline(min(self.at, now() + seconds))

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - now())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return now() >= self.at
