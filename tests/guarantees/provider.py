"""Mail providers that keep what they took and answer as a step says. They know no more of us than a real one would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

from db.delivery_rules import ProviderTraits
from db.delivery_state import FailureCategory, Outcome
from tasks.deadline import Deadline
from tasks.providers.base import OutgoingMail, Pause, Result
from tests.guarantees.clock import Clock
from tests.guarantees.process import point

# What it says before the point of no return: nothing was handed over.
EARLY = MappingProxyType(
    {
        "is away": Result(Outcome.REFUSED_US, "connection_refused", pause=Pause("away")),
        "refuses us": Result(
            Outcome.REFUSED_US, "bad_credentials", FailureCategory.CONFIG, pause=Pause("config")
        ),
        "greylists": Result(Outcome.TRANSIENT, "greylisted", response_status="451 4.7.1"),
        "knows no such user": Result(
            Outcome.PERMANENT, "no_such_user", FailureCategory.RECIPIENT, response_status="550 5.1.1"
        ),
    }
)
# What it says after the message's bytes, having kept nothing of them.
LATE = MappingProxyType(
    {
        "defers": Result(Outcome.TRANSIENT, "not_now", response_status="451 4.3.0"),
        "rejects": Result(
            Outcome.PERMANENT, "content_rejected", FailureCategory.CONTENT, response_status="554 5.6.0"
        ),
        "drops it and hangs": Result(Outcome.UNKNOWN, "smtp_timeout"),
    }
)
TAKES = "takes it"
_WRITE_SECONDS = 15.0
TAKES_SILENTLY = "takes it and hangs"


@dataclass(frozen=True, slots=True)
class Taken:
    """A mail that the provider took: a copy that a person can find."""

    provider: str
    delivery_key: str
    mail: OutgoingMail


@dataclass
class FakeProvider:
    """One account. `before_taking` is called when the bytes of a mail arrive."""

    traits: ProviderTraits
    clock: Clock
    before_taking: Callable[[str, OutgoingMail], None]
    mood: str = TAKES
    taken: list[Taken] = field(default_factory=list)
    _keys: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.traits.name

    @property
    def replay_window(self) -> float:
        return self.traits.replay_window

    @property
    def can_look_up(self) -> bool:
        return self.traits.can_look_up

    def send(self, mail: OutgoingMail, deadline: Deadline, hand_over: Callable[[], None]) -> Result:
        """As an adapter does: refusals that come early, the hand-over, the bytes within the deadline, the answer."""
        point("connected")
        if self.mood in EARLY:
            return EARLY[self.mood]
        hand_over()
        # As careless as an adapter may be: its own time begins here. What came before is for the fence to see.
        written_by = self.clock.ahead + _WRITE_SECONDS
        point("handed over")
        if self.clock.ahead > written_by:
            return Result(Outcome.UNKNOWN, "smtp_timeout")
        self.before_taking(self.name, mail)
        mood = self.mood
        if mood not in LATE:
            self._take(mail)
        point("sent")
        if mood in LATE:
            return LATE[mood]
        if mood == TAKES_SILENTLY or deadline.expired:
            return Result(Outcome.UNKNOWN, "smtp_timeout")
        return Result(Outcome.ACCEPTED, "accepted", response_status="250 2.0.0")

    def look_up(self, delivery_key: str, recipient: str, deadline: Deadline) -> Result:
        """What it has of ours."""
        point("connected")
        if any(taken.delivery_key == delivery_key for taken in self.taken):
            return Result(Outcome.ACCEPTED, "lookup_found")
        return Result(Outcome.NOT_SENT, "lookup_not_found")

    def close(self) -> None:
        """Nothing is open."""

    def _take(self, mail: OutgoingMail) -> None:
        first = self._keys.setdefault(mail.delivery_key, self.clock.ahead)
        known = any(taken.delivery_key == mail.delivery_key for taken in self.taken)
        if known and self.clock.ahead < first + self.replay_window:
            return  # the same key again: the same answer, no second mail
        self.taken.append(Taken(self.name, mail.delivery_key, mail))
