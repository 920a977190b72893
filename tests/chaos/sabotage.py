"""Workers with one rule of the protocol taken out: `python -m tests.chaos.sabotage NAME -A tasks.celery_app worker …`.

The product has no switch for it. Here named functions of it are replaced before the worker starts, so that the ledger can be
seen to fail. `honest` takes nothing out. With CHAOS_FREEZE the process freezes itself once, right after its first hand-over
was committed: where no signal from outside would hit it for certain.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from celery.bin.celery import main as celery

from db import delivery_rules, leases
from db.delivery_state import State
from tasks import delivery
from tasks.deadline import Deadline
from tasks.providers.smtp import SmtpProvider


def without_fence() -> None:
    """A settle no longer asks whose lease it is: not its owner, not its token, not its end."""
    leases._holds = lambda facts, lease, outcome: facts.delivery.status is State.SENDING


def without_stamp() -> None:
    """No hand-over is written before the bytes leave."""
    leases.hand_over = lambda *args, **kwargs: True


def without_sticky() -> None:
    """An open hand-over no longer keeps a delivery out of pending."""

    def back(
        facts: Any, at: Any, policy: Any, *, exhausted: Any = None, waited_for_provider: bool = False
    ) -> Any:
        return delivery_rules._into_pending(
            facts, at, exhausted=exhausted, waited_for_provider=waited_for_provider
        )

    delivery_rules._back = back


def without_local_fence() -> None:
    """Nobody looks at the clock between the hand-over's commit and the bytes. The total deadline of the send looks again, so
    it is renewed there; either alone would keep the promise.
    """
    delivery.deadline = SimpleNamespace(now=lambda: 0.0)  # type: ignore[assignment,attr-defined]

    def begun(provider: Any, dialogue: Any, deadline: Deadline) -> None:
        dialogue.until(Deadline.after(5.0))

    SmtpProvider._not_begun = begun  # type: ignore[assignment,method-assign]


def freeze_after_the_hand_over() -> None:
    """Once, at a place that both builds have."""
    hand_over = leases.hand_over
    left = [signal.SIGSTOP]

    def freezing(*args: Any, **kwargs: Any) -> bool:
        stamped = hand_over(*args, **kwargs)
        if left:
            os.kill(os.getpid(), left.pop())
        return stamped

    leases.hand_over = freezing


SABOTAGE: dict[str, Callable[[], None]] = {
    "honest": lambda: None,
    "fence": without_fence,
    "stamp": without_stamp,
    "sticky": without_sticky,
    "local_fence": without_local_fence,
}


if __name__ == "__main__":
    SABOTAGE[sys.argv.pop(1)]()
    if os.environ.get("CHAOS_FREEZE"):
        freeze_after_the_hand_over()
    sys.exit(celery())
