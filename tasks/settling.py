"""Writing down what a lease came to, however long the database takes to come back."""

from __future__ import annotations

import threading

from db import leases
from db.delivery_rules import AttemptResult
from db.delivery_state import Outcome
from db.errors import DatabaseUnavailable
from db.leases import Lease, Settled
from db.logs import get_logger
from db.provider_pauses import Refusal
from db.session import Database
from tasks.config import WorkerSettings
from tasks.deadline import Deadline
from tasks.providers.base import Result
from tasks.retry_policy import RetryPolicy
from tasks.shutdown import Shutdown

log = get_logger(__name__)

_PAUSE_SECONDS = 0.25
_SHUTDOWN_PATIENCE_SECONDS = 4.0  # with the send deadline and a last try below a dyno's 30 s


def settle(
    database: Database,
    lease: Lease,
    result: Result,
    *,
    policy: RetryPolicy,
    settings: WorkerSettings,
    shutdown: Shutdown,
) -> Settled | None:
    """Write the result, for as long as it takes the database to come back within the lease. None: it did not."""
    patience = Deadline.after(settings.lease)
    pause = threading.Event()
    refusal = _refusal(result, policy)
    while True:
        try:
            settled = leases.settle(
                database, lease, _attempt_result(result), policy, refusal=refusal, release=settings.release
            )
        except DatabaseUnavailable:
            if shutdown.requested:
                patience = patience.within(_SHUTDOWN_PATIENCE_SECONDS)
            if patience.expired:
                log.error("settle_given_up", outcome=result.outcome, error_code=result.code, alert=True)
                return None
            pause.wait(_PAUSE_SECONDS)
        except Exception:
            # One result that cannot be written must not end the drain; the sweep reclaims its lease.
            log.exception("settle_raised", outcome=result.outcome, error_code=result.code, alert=True)
            return None
        else:
            _tell(lease, result, settled)
            return settled


def _tell(lease: Lease, result: Result, settled: Settled) -> None:
    log.info(
        "settled",
        outcome=result.outcome,
        error_code=result.code,
        state=settled.state,
        stale=settled.stale,
        provider=lease.provider,
    )


def _refusal(result: Result, policy: RetryPolicy) -> Refusal | None:
    if result.pause is None:
        return None
    log.error("provider_refused_us", error_code=result.code, kind=result.pause.kind, alert=True)
    kind = result.pause.kind
    return Refusal(kind, result.code, result.pause.retry_after, policy.pauses(kind))


def _attempt_result(result: Result) -> AttemptResult:
    return AttemptResult(
        outcome=result.outcome,
        error_code=None if result.outcome is Outcome.ACCEPTED else result.code,
        category=result.category,
        response_status=result.response_status,
        provider_message_id=result.provider_message_id,
    )
