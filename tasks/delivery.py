"""One delivery, from claim to settle: claim -> render -> hand over -> send -> settle.

PostgreSQL decides at every step; a result that comes late or an answer that never comes is an ordinary outcome here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from db import ids, leases, overdue
from db.delivery_rules import AttemptResult
from db.delivery_state import FailureCategory, Outcome
from db.errors import DatabaseUnavailable, UnknownTokenKey
from db.leases import ClaimTerms, Lease, Settled
from db.logs import bound, get_logger
from db.provider_pauses import Refusal
from db.session import Database
from tasks import deadline
from tasks.config import WorkerSettings
from tasks.deadline import Deadline
from tasks.message import UnknownTemplateVersion
from tasks.providers.base import LookUp, OutgoingMail, Provider, Result
from tasks.retry_policy import RetryPolicy
from tasks.shutdown import Shutdown
from tasks.slots import ScanStart, Slots

log = get_logger(__name__)

_SLICE_SECONDS = 5.0  # a drain gives its slot back this often
_WAKE_SECONDS = 1.0  # another slot is woken at most this often a process
_RECLAIM_AT_ONCE = 10  # what a drain takes back before it claims; the sweep does the rest
_SETTLE_PAUSE_SECONDS = 0.25
_SHUTDOWN_PATIENCE_SECONDS = 4.0  # with the send deadline and a last try below a dyno's 30 s


class NothingMaySend(Exception):
    """Raised out of a hand-over: no byte leaves. `code` is the attempt's error code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Courier:
    """What one process needs to deliver."""

    database: Database
    settings: WorkerSettings
    terms: Callable[[str], ClaimTerms]
    providers: Mapping[str, Provider]
    policy: RetryPolicy
    render: Callable[[Lease], OutgoingMail]
    kick: Callable[[], None]
    slots: Slots
    scan: ScanStart
    shutdown: Shutdown
    _may_wake: threading.Lock = field(default_factory=threading.Lock)
    _wake_after: float = 0.0

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
        with self.scan.next() as position:
            claimed = leases.claim(self.database, self.terms(owner), position)
        for lease in claimed:
            self.scan.claimed(lease)
            self.deliver(lease)
        return bool(claimed)

    def deliver(self, lease: Lease) -> Settled | None:
        """See one lease through to its settle. None: the database would not take the result; the sweep will."""
        with bound(
            correlation_id=lease.correlation_id,
            delivery_id=ids.public("dlv", lease.delivery_id),
            lease_token=lease.token,
        ):
            result = self._look_up(lease) if lease.action == "look_up" else self._send(lease)
            return self._settle(lease, result)

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
            result = self.providers[lease.provider].send(
                mail, Deadline.after(self.settings.send_deadline), hand_over
            )
            if not stamped and result.outcome in {Outcome.ACCEPTED, Outcome.UNKNOWN}:
                log.error("adapter_skipped_hand_over", alert=True)
                return Result(Outcome.TRANSIENT, "internal_error", FailureCategory.INTERNAL)
            return result
        except NothingMaySend as reason:
            return Result(Outcome.NOT_SENT, reason.code)
        except (UnknownTokenKey, UnknownTemplateVersion) as error:
            # Another release wrote this row: this one cannot render it, but need not fail it.
            log.error("cannot_render", reason=type(error).__name__, alert=True)
            return Result(Outcome.REFUSED_US, "cannot_render", FailureCategory.CONFIG)
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
        key = mail.delivery_key if self.providers[lease.provider].replay_window else None
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
        provider = self.providers[lease.provider]
        assert isinstance(provider, LookUp), "the claim looks up only where that is possible"
        try:
            return provider.look_up(
                ids.public("dlv", lease.delivery_id), Deadline.after(self.settings.send_deadline)
            )
        except Exception:
            log.exception("look_up_raised", alert=True)
            return Result(Outcome.NOT_SENT, "lookup_failed")

    def _settle(self, lease: Lease, result: Result) -> Settled | None:
        """Write the result, for as long as it takes the database to come back within the lease."""
        patience = Deadline.after(self.settings.lease)
        pause = threading.Event()
        refusal = self._refusal(result)
        while True:
            try:
                settled = leases.settle(
                    self.database,
                    lease,
                    _attempt_result(result),
                    self.policy,
                    refusal=refusal,
                    release=self.settings.release,
                )
            except DatabaseUnavailable:
                if self.shutdown.requested:
                    patience = patience.within(_SHUTDOWN_PATIENCE_SECONDS)
                if patience.expired:
                    log.error("settle_given_up", outcome=result.outcome, error_code=result.code, alert=True)
                    return None
                pause.wait(_SETTLE_PAUSE_SECONDS)
                continue
            except (
                Exception
            ):  # one result that cannot be written must not end the drain; the sweep reclaims its lease
                log.exception("settle_raised", outcome=result.outcome, error_code=result.code, alert=True)
                return None
            log.info(
                "settled",
                outcome=result.outcome,
                error_code=result.code,
                state=settled.state,
                stale=settled.stale,
                provider=lease.provider,
            )
            return settled

    def _refusal(self, result: Result) -> Refusal | None:
        if result.pause is None:
            return None
        log.error("provider_refused_us", error_code=result.code, kind=result.pause.kind, alert=True)
        kind = result.pause.kind
        return Refusal(kind, result.code, result.pause.retry_after, self.policy.pauses(kind))

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
        return leases.has_due_work(self.database, self.terms(""), self.scan.position)

    def finds_due_work(self) -> bool:
        """The same, wherever it lies: what a claimer left behind its position is found by the next claim then."""
        if self.has_due_work():
            return True
        behind = leases.has_due_work(self.database, self.terms(""))
        if behind:
            self.scan.rewind()
        return behind


def _attempt_result(result: Result) -> AttemptResult:
    return AttemptResult(
        outcome=result.outcome,
        error_code=None if result.outcome is Outcome.ACCEPTED else result.code,
        category=result.category,
        response_status=result.response_status,
        provider_message_id=result.provider_message_id,
    )
