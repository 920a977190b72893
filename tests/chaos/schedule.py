"""What goes wrong and when: a pure function of a seed and a length. The same seed gives the same schedule.

Kinds are dealt from a shuffled deck, so that a long run meets each of them about equally often and a short one meets as many
as fit. Faults overlap, but never two on one part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PROCESSES = ("web1", "web2", "worker1", "worker2", "beat1", "beat2")
WORKERS = ("worker1", "worker2")
SERVING = PROCESSES[:4]  # beat neither reads the clock for a decision nor talks to PostgreSQL
MAIL_SERVERS = ("mail1", "mail2")
LINKS = (
    *(f"{name}-postgres" for name in SERVING),
    *(f"{name}-redis" for name in PROCESSES),
    *(f"{worker}-{mail}" for worker in WORKERS for mail in MAIL_SERVERS),
    *(f"client-{name}" for name in ("web1", "web2")),
)
MOODS = (
    "accept_then_hang",
    "hang",
    "drip",
    "reset",
    "accept_then_reset",
    "not_now",
    "never",
    "greylist",
    "lie",
    "store_then_refuse",
    "away",
    "slow",
)
CALM_BEFORE = 4.0  # seconds in which the load finds its pace
CALM_AFTER = 20.0  # seconds without faults at the end, in which the load ends too
_GAPS = (1.2, 3.6)  # seconds between two faults


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` befalls `target` at `at` for `seconds` (0: it is an instant). `amount` is what the kind makes of it: seconds
    of delay, hours of a wrong clock.
    """

    at: float
    kind: str
    target: str
    seconds: float = 0.0
    amount: float = 0.0

    @property
    def end(self) -> float:
        """When it is over, in seconds from the start."""
        return self.at + self.seconds

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        amount = f" ({self.amount:+.2f})" if self.amount else ""
        return f"{self.at:7.1f} s  {self.kind:<20} {self.target}{amount}{lasting}"


Targets = tuple[str, ...]
Drawn = Callable[[random.Random], float]


@dataclass(frozen=True, slots=True)
class Kind:
    """What can be drawn: whom it may befall, for how long, and how often it lies in the deck."""

    name: str
    targets: Targets
    seconds: tuple[float, float] = (0.0, 0.0)
    amounts: tuple[float, ...] = ()
    copies: int = 1


_POSTGRES, _REDIS = ("postgres",), ("redis",)
DECK = (
    Kind("kill", PROCESSES, copies=3),
    Kind("terminate", PROCESSES, copies=2),
    Kind("pause", SERVING, (0.5, 14.0), copies=3),  # beyond a lease, too
    Kind("kill_mid_send", WORKERS, copies=2),
    Kind("terminate_mid_send", WORKERS),
    Kind("pause_mid_send", WORKERS, (9.0, 14.0), copies=2),
    Kind("wrong_clock", PROCESSES, (10.0, 20.0), (3.0, -3.0, 11.0, -26.0), copies=2),
    Kind("redis_restart", _REDIS, (0.5, 4.0)),
    Kind("redis_freeze", _REDIS, (1.0, 6.0)),
    Kind("redis_flush", _REDIS),
    Kind("redis_clients_killed", _REDIS),
    Kind("postgres_fast", _POSTGRES, (0.3, 2.0)),
    Kind("postgres_immediate", _POSTGRES, (0.3, 2.0)),
    Kind("postgres_backends", _POSTGRES),
    Kind("postgres_read_only", _POSTGRES, (1.0, 3.0)),
    Kind("postgres_slow_commits", _POSTGRES, (3.0, 8.0)),
    Kind("postgres_freeze", _POSTGRES, (1.0, 4.0)),
    Kind("black_hole", LINKS, (1.0, 10.0), copies=3),
    Kind("half_open_out", LINKS, (1.0, 8.0), copies=2),  # what it says is lost
    Kind("half_open_in", LINKS, (1.0, 8.0), copies=2),  # what it is told is lost
    Kind("delay", LINKS, (2.0, 8.0), (0.05, 0.2, 0.7)),
    Kind("cut", LINKS, copies=2),
    *(Kind(f"mail_{mood}", MAIL_SERVERS, (2.0, 7.0)) for mood in MOODS),
)
KINDS = (*(kind.name for kind in DECK), "redis_gone")


def plan(seed: int, minutes: float) -> tuple[Fault, ...]:
    """The faults of one run, in order of their beginning. In its last third Redis goes for good."""
    draw = random.Random(f"{seed}/{minutes:g}")
    total = minutes * 60
    last = total - CALM_AFTER
    gone = Fault(round(total * draw.uniform(0.67, 0.78), 2), "redis_gone", "redis", seconds=total)
    faults = [gone]
    busy: dict[str, float] = {}
    at = CALM_BEFORE
    cards = _cards(draw)
    while at < last:
        fault = _fault(next(cards), round(at, 2), last, draw)
        if _is_free(fault, busy) and not (fault.target == "redis" and fault.end >= gone.at):
            busy[fault.target] = fault.end + 1.0
            faults.append(fault)
            at += draw.uniform(*_GAPS)
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _cards(draw: random.Random) -> Iterator[Kind]:
    while True:
        deck = [kind for kind in DECK for _ in range(kind.copies)]
        draw.shuffle(deck)
        yield from deck


def _fault(kind: Kind, at: float, last: float, draw: random.Random) -> Fault:
    target = draw.choice(kind.targets)
    amount = draw.choice(kind.amounts) if kind.amounts else 0.0
    seconds = min(draw.uniform(*kind.seconds), last - at)
    return Fault(at, kind.name, target, round(seconds, 2), amount)


def _is_free(fault: Fault, busy: dict[str, float]) -> bool:
    """Whether nothing else goes on there; a process and its links are hurt together, as they would be."""
    return busy.get(fault.target, 0.0) <= fault.at
