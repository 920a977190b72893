"""What can happen, as values: Hypothesis draws them, shrinks them and prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import hypothesis.strategies as st

from db.phases import CancelledBy
from db.provider_events import Kind
from db.stakes import Verdict
from tests.guarantees.lossy import Commit
from tests.guarantees.process import POINTS
from tests.guarantees.provider import EARLY, LATE, TAKES, TAKES_SILENTLY
from tests.guarantees.world import CLIENTS, SLOTS, WORKERS, World


class Step(Protocol):
    """One thing that happens. Numbers that say which are taken modulo what there is, newest first."""

    def happen(self, world: World) -> None: ...


@dataclass(frozen=True)
class Ask:
    client: int
    account: int
    mailbox: int
    purpose: str
    lifetime: float | None
    commit: Commit

    def happen(self, world: World) -> None:
        world.ask(
            self.client,
            self.account,
            self.mailbox,
            purpose=self.purpose,
            lifetime=self.lifetime,
            commit=self.commit,
        )


@dataclass(frozen=True)
class AskAgain:
    which: int
    same_body: bool
    commit: Commit

    def happen(self, world: World) -> None:
        other = {} if self.same_body else {"locale": "de"}
        world.ask_again(self.which, commit=self.commit, **other)


@dataclass(frozen=True)
class Work:
    """A worker's slot goes on to a point, or to the end (None) and back for more."""

    slot: int
    mood: str
    until: str | None
    commit: Commit

    def happen(self, world: World) -> None:
        world.work(self.slot, self.mood, self.until, self.commit)


@dataclass(frozen=True)
class Stall:
    """A slot stands still until its lease has been taken back and another slot has come to a point; then it goes on."""

    slot: int
    mood: str
    at: str
    other: int
    other_mood: str
    other_until: str | None
    pause: float
    commit: Commit

    def happen(self, world: World) -> None:
        world.work(self.slot, self.mood, self.at, "answered")
        world.let_pass(91.0)
        world.sweep(SLOTS[self.other])
        world.let_pass(self.pause)
        world.work(self.other, self.other_mood, self.other_until, "answered")
        world.work(self.slot, self.mood, None, self.commit)


@dataclass(frozen=True)
class Meanwhile:
    """While a slot stands still at a point, something else happens; then it goes on."""

    slot: int
    mood: str
    at: str
    step: Step
    commit: Commit

    def happen(self, world: World) -> None:
        world.work(self.slot, self.mood, self.at, "answered")
        self.step.happen(world)
        world.work(self.slot, self.mood, None, self.commit)


@dataclass(frozen=True)
class Kill:
    slot: int

    def happen(self, world: World) -> None:
        world.kill(self.slot)


@dataclass(frozen=True)
class Sweep:
    worker: int

    def happen(self, world: World) -> None:
        world.sweep(self.worker)


@dataclass(frozen=True)
class TimePasses:
    seconds: float

    def happen(self, world: World) -> None:
        world.let_pass(self.seconds)


@dataclass(frozen=True)
class Use:
    which: int
    commit: Commit

    def happen(self, world: World) -> None:
        world.use(self.which, commit=self.commit)


@dataclass(frozen=True)
class Leak:
    which: int
    commit: Commit

    def happen(self, world: World) -> None:
        world.leak(self.which, commit=self.commit)


@dataclass(frozen=True)
class Disown:
    which: int

    def happen(self, world: World) -> None:
        world.disown(self.which)


@dataclass(frozen=True)
class Cancel:
    which: int
    by: CancelledBy
    commit: Commit

    def happen(self, world: World) -> None:
        world.cancel(self.which, by=self.by, commit=self.commit)


@dataclass(frozen=True)
class Retry:
    which: int

    def happen(self, world: World) -> None:
        world.retry(self.which)


@dataclass(frozen=True)
class Resolve:
    which: int
    verdict: Verdict

    def happen(self, world: World) -> None:
        world.resolve(self.which, self.verdict)


@dataclass(frozen=True)
class Suppress:
    mailbox: int

    def happen(self, world: World) -> None:
        world.suppress(self.mailbox)


@dataclass(frozen=True)
class Report:
    which: int
    kind: Kind
    by: str | None
    again: bool

    def happen(self, world: World) -> None:
        world.report(self.which, self.kind, by=self.by, again=self.again)


_which = st.sampled_from([0, 0, 0, 1, 2])
_commit: st.SearchStrategy[Commit] = st.sampled_from(["answered"] * 6 + ["unheard", "lost"])  # type: ignore[list-item]
# Half of all mails get through, and a third of the rest hangs: what most guarantees are about.
_mood = st.sampled_from(
    [TAKES] * 4 + [TAKES_SILENTLY] * 3 + ["drops it and hangs"] * 2 + sorted({*EARLY, *LATE})
)
_until = st.sampled_from([None, None, None, *POINTS])
# Around the lease (90 s), a cooldown, an unknown's checks, the evidence window, a gate, a token's life, retention.
_seconds = st.sampled_from(
    [6.0, 31.0, 61.0, 61.0, 91.0, 91.0, 301.0, 1801.0, 1801.0, 14_500.0, 90_000.0, 3_500_000.0]
)

_ask = st.builds(
    Ask,
    st.integers(0, len(CLIENTS) - 1),
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from(["signup", "signup", "email_change", "newsletter"]),
    st.sampled_from([None, None, 400.0, 3600.0]),
    _commit,
)
_slot = st.integers(0, len(SLOTS) - 1)
_work = st.builds(Work, _slot, _mood, _until, _commit)
_stall = st.builds(
    Stall,
    _slot,
    _mood,
    st.sampled_from(POINTS),
    _slot,
    _mood,
    _until,
    st.sampled_from([0.0, 61.0, 61.0]),
    _commit,
)
_provider = st.sampled_from([None, None, None, *(traits.name for traits in WORKERS[0])])

# By weight: most runs must get mails out, or little can go wrong. (`one_of` would drop what is repeated.)
_WEIGHTED: list[tuple[int, st.SearchStrategy[Step]]] = [
    (4, _ask),
    (1, st.builds(AskAgain, _which, st.sampled_from([True, True, False]), _commit)),
    (12, _work),
    (5, _stall),
    (1, st.builds(Kill, _slot)),
    (4, st.builds(Sweep, st.integers(0, len(WORKERS) - 1))),
    (4, st.builds(TimePasses, _seconds)),
    (2, st.builds(Use, _which, _commit)),
    (1, st.builds(Leak, _which, _commit)),
    (1, st.builds(Disown, _which)),
    (1, st.builds(Cancel, _which, st.sampled_from([CancelledBy.CLIENT, CancelledBy.OPERATOR]), _commit)),
    (1, st.builds(Retry, _which)),
    (1, st.builds(Resolve, _which, st.sampled_from(Verdict))),
    (1, st.builds(Suppress, st.integers(0, 1))),
    (2, st.builds(Report, _which, st.sampled_from(list(Kind)), _provider, st.booleans())),
]


def _one_of(kinds: list[tuple[int, st.SearchStrategy[Step]]]) -> st.SearchStrategy[Step]:
    each = [kind for weight, kind in kinds for _ in range(weight)]
    return st.integers(0, len(each) - 1).flatmap(each.__getitem__)


# What a worker may have slept through; half of it closes the gate.
_WHILE_IT_SLEEPS: list[tuple[int, st.SearchStrategy[Step]]] = [
    (3, st.builds(Cancel, _which, st.sampled_from([CancelledBy.CLIENT, CancelledBy.OPERATOR]), _commit)),
    (2, st.builds(Use, _which, _commit)),
    (2, st.builds(Leak, _which, _commit)),
    (1, st.builds(Disown, _which)),
    (1, _ask),
    (2, st.builds(Report, _which, st.sampled_from(list(Kind)), _provider, st.booleans())),
    (1, st.builds(Resolve, _which, st.sampled_from(Verdict))),
    (4, st.builds(TimePasses, _seconds)),
]
_meanwhile = st.builds(Meanwhile, _slot, _mood, st.sampled_from(POINTS), _one_of(_WHILE_IT_SLEEPS), _commit)
STEPS = _one_of([*_WEIGHTED, (16, _meanwhile)])
