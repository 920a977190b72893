"""One delivery, from claim to settle: claim -> render -> hand over -> send -> settle.

PostgreSQL decides at every step; a result that comes late or an answer that never comes is an ordinary outcome here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from db import ids, leases, overdue, retention
from db.delivery_state import FailureCategory, Outcome, State
from db.errors import DatabaseUnavailable, UnknownTokenKey
from db.leases import Lease, Settled
from db.logs import bound, get_logger
from db.session import Database
from tasks import deadline
from tasks.branding import UnknownBrandingShape
from tasks.config import WorkerSettings
from tasks.deadline import Deadline
from tasks.message import TemplateError, UnknownTemplateVersion
from tasks.providers.base import LookUp, OutgoingMail, Provider, Result, quotes_mail
from tasks.reports import record_reports
from tasks.retry_policy import RetryPolicy
from tasks.routes import LIVE, TEST, Route
from tasks.settling import settle
from tasks.shutdown import Shutdown
from tasks.slots import Slots
from tasks.turns import Turns

log = get_logger(__name__)

_SLICE_SECONDS = 5.0  # a drain gives its slot back this often
_WAKE_SECONDS = 1.0  # another slot is woken at most this often a process
_RECLAIM_AT_ONCE = 10  # what a drain takes back before it claims; the sweep does the rest


class NothingMaySend(Exception):
    """Raised out of a hand-over: no byte leaves. `code` is the attempt's error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Courier:
    """What one process needs to deliver. `routes` by name: `live` and `test`."""

    database: Database
    settings: WorkerSettings
    routes: Mapping[str, Route]
    policy: RetryPolicy
    render: Callable[[Lease], OutgoingMail]
    kick: Callable[[], None]
    slots: Slots
    shutdown: Shutdown
    anonymised_up_to: retention.Batch = field(default_factory=retention.Batch)  # the sweep's place
    _may_wake: threading.Lock = field(default_factory=threading.Lock)
    _wake_after: float = 0.0

    def __post_init__(self) -> None:
        self._turns = Turns(self.routes[LIVE], self.routes[TEST], self.slots.count)

    def drain(self, seconds: float = _SLICE_SECONDS) -> int:
        """Deliver one after the other until nothing is due or the slice ends. Answers how many were claimed.

        Without the database it ends: the sweep asks again.
        """
        claimed = 0
        with self.slots.take() as owner:
            until = Deadline.after(seconds)
            try:
                if not self.shutdown.requested:
                    self._reclaim_some()
                while not self.shutdown.requested and self.deliver_next(owner):
                    claimed += 1
                    self._wake_another()
                    if until.expired:
                        self.kick()  # the slice ended, the work may not have
                        break
            except DatabaseUnavailable as error:
                log.warning("database_unavailable", reason=type(error).__name__)
        return claimed

    def _reclaim_some(self) -> None:
        overdue.reclaim_lost(
            self.database, self.policy, lease_seconds=self.settings.lease, limit=_RECLAIM_AT_ONCE
        )

    def deliver_next(self, owner: str) -> bool:
        """Claim one delivery and see it through; False when nothing is due."""
        return self._turns.next(lambda route: self._deliver_from(route, owner))

    def _deliver_from(self, route: Route, owner: str) -> bool:
        claimed = route.claim(self.database, owner)
        for lease in claimed:
            self.deliver(lease)
        return bool(claimed)

    def deliver(self, lease: Lease) -> Settled | None:
        """See one lease through to its settle. None: the database would not take the result; the sweep will."""
        with bound(
            correlation_id=lease.correlation_id,
            delivery_id=ids.public("dlv", lease.delivery_id),
            lease_token=lease.token,
        ):
            if lease.token == self.settings.oscillation_limit + 1:  # a number that comes once
                log.error("delivery_oscillates", limit=self.settings.oscillation_limit, alert=True)
            result = self._look_up(lease) if lease.action == "look_up" else self._send(lease)
            settled = settle(
                self.database,
                lease,
                result,
                policy=self.policy,
                settings=self.settings,
                shutdown=self.shutdown,
            )
            if settled is not None and settled.state is State.ACCEPTED and not settled.stale:
                record_reports(self.database, self._provider(lease), lease)
            return settled

    def _provider(self, lease: Lease) -> Provider:
        """KeyError for one that is not of the lease's route: such a mail is not sent."""
        return self.routes[lease.route].providers[lease.provider]

    def _send(self, lease: Lease) -> Result:
        stamped = False

        def hand_over() -> None:
            nonlocal stamped
            self._hand_over(lease, mail)
            stamped = True

        try:
            mail = self.render(lease)
            if lease.payload_digest not in {None, mail.digest}:
                # A replay is the same bytes or does not happen: MAIL_FROM or PUBLIC_URL is not what it was.
                log.error("replay_differs", alert=True)
                return Result(Outcome.NOT_SENT, "payload_changed")
            result = self._provider(lease).send(
                replace(mail, attempt=lease.attempt_count + 1),
                Deadline.after(self.settings.send_deadline),
                hand_over,
            )
            if quotes_mail(result.provider_message_id, mail):
                result = replace(result, provider_message_id=None)
            if not stamped and result.outcome in {Outcome.ACCEPTED, Outcome.UNKNOWN}:
                log.error("adapter_skipped_hand_over", alert=True)
                return Result(Outcome.TRANSIENT, "internal_error", FailureCategory.INTERNAL)
            return result
        except NothingMaySend as reason:
            return Result(Outcome.NOT_SENT, reason.code)
        except (UnknownTokenKey, UnknownTemplateVersion, UnknownBrandingShape) as error:
            # Another release wrote this row: this one cannot render it, but need not fail it.
            log.error("cannot_render", reason=type(error).__name__, alert=True)
            return Result(Outcome.REFUSED_US, "cannot_render", FailureCategory.CONFIG)
        except TemplateError as error:
            # This client's mail alone. Not for good at once: the fault may be this release's, and mended by the next.
            log.error("template_error", reason=str(error), alert=True)
            return Result(Outcome.TRANSIENT, "template_error", FailureCategory.CONTENT)
        except Exception:
            log.exception("adapter_raised", alert=True)
            if stamped:
                return Result(Outcome.UNKNOWN, "internal_error")
            return Result(Outcome.TRANSIENT, "internal_error", FailureCategory.INTERNAL)

    def _hand_over(self, lease: Lease, mail: OutgoingMail) -> None:
        """The last step before bytes leave. Raises NothingMaySend whenever they must not."""
        if self.shutdown.requested:
            raise NothingMaySend("shutting_down")
        asked = deadline.now()
        key = mail.delivery_key if self._provider(lease).replay_window else None
        try:
            stamped = leases.hand_over(
                self.database,
                lease,
                mail.digest,
                key=key,
                lease_seconds=self.settings.lease,
                release=self.settings.release,
            )
        except DatabaseUnavailable:
            raise NothingMaySend("hand_over_unanswered") from None
        if not stamped:
            log.warning("hand_over_refused")
            raise NothingMaySend("hand_over_refused")
        # The local fence: by a clock that counts through sleep, so that a paused worker sends nothing late.
        settings = self.settings
        if deadline.now() - asked > settings.lease - settings.send_deadline - settings.lease_margin:
            log.warning("hand_over_too_old")
            raise NothingMaySend("hand_over_too_old")

    def _look_up(self, lease: Lease) -> Result:
        provider = self._provider(lease)
        assert isinstance(provider, LookUp), "the claim looks up only where that is possible"
        try:
            return provider.look_up(
                ids.public("dlv", lease.delivery_id),
                lease.recipient,
                Deadline.after(self.settings.send_deadline),
            )
        except Exception:
            log.exception("look_up_raised", alert=True)
            return Result(Outcome.NOT_SENT, "lookup_failed")

    def _wake_another(self) -> None:
        """More is due than this slot takes at once: ask for one more slot."""
        with self._may_wake:
            if deadline.now() < self._wake_after:
                return
            self._wake_after = deadline.now() + _WAKE_SECONDS
        if self.has_due_work():
            self.kick()

    def has_due_work(self) -> bool:
        """Whether a claim would find something now."""
        return any(route.has_due_work(self.database) for route in self.routes.values())

    def finds_due_work(self) -> bool:
        """The same, wherever in the table it lies."""
        return any(route.finds_due_work(self.database) for route in self.routes.values())
