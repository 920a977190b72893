"""How long until things were normal again after each fault: the first create that succeeds, the first mail that arrives."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.chaos.book import NO_ANSWER, Book
from tests.chaos.mailbox import Mail
from tests.chaos.schedule import Fault

_AFTERMATH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault as it happened: seconds since 1970."""

    fault: Fault
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one kind: how often it happened; how many calls were refused or not answered meanwhile and for a second after it;
    seconds from its end, the median and the worst. None: the load had ended. Faults overlap, so these are upper bounds.
    """

    kind: str
    times: int
    failed: int
    create: float | None
    worst_create: float | None
    mail: float | None
    worst_mail: float | None


def measure(injected: Sequence[Injected], book: Book, mails: Sequence[Mail]) -> list[Recovery]:
    """By kind. Creates count that were asked for after the fault had ended."""
    creates = sorted((c.asked_at, c.answered_at) for c in book.of("create") if c.status == 202)
    failed = sorted(c.asked_at for c in book.calls if c.status == NO_ANSWER or c.status >= 500)
    arrivals = sorted(mail.at for mail in mails)
    by_kind: dict[str, list[Injected]] = defaultdict(list)
    for each in injected:
        by_kind[each.fault.kind].append(each)
    return [
        Recovery(
            kind,
            len(some),
            sum(_between(failed, each.began, each.ended + _AFTERMATH_SECONDS) for each in some),
            *_middle_and_worst([_first_create(creates, each.ended) for each in some]),
            *_middle_and_worst([_next(arrivals, each.ended) for each in some]),
        )
        for kind, some in sorted(by_kind.items())
    ]


def _between(moments: list[float], start: float, end: float) -> int:
    return bisect_left(moments, end) - bisect_left(moments, start)


def _first_create(creates: list[tuple[float, float]], after: float) -> float | None:
    later = [answered for _, answered in creates[bisect_left(creates, (after, 0.0)) :]]
    return min(later) - after if later else None


def _next(moments: list[float], after: float) -> float | None:
    place = bisect_left(moments, after)
    return moments[place] - after if place < len(moments) else None


def _middle_and_worst(waits: Sequence[float | None]) -> tuple[float | None, float | None]:
    known = [wait for wait in waits if wait is not None]
    return (median(known), max(known)) if known else (None, None)
