"""The product's processes, which stop for ever where a piece of work says: `celery -A tests.faults.halting …` and
`gunicorn 'tests.faults.halting:create_app()'`.

The product has no switch for it: named functions of it are wrapped here before it starts. A request or a delivery names its
boundary by its correlation id. Whoever comes there leaves a file of that name, with the process's id in it, in the folder
HALTING_FOLDER and goes no further, until somebody kills the process. The next process finds the file and passes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from flask import Flask, Response, g

import app as product
from db import consumption, leases, verifications
from db.delivery_state import Outcome
from db.leases import Lease
from db.session import Database, DeadlineConnection
from tasks.celery_app import app
from tasks.delivery import Courier
from tasks.providers.smtp_dialogue import Dialogue

__all__ = ["app", "create_app", "reached"]  # `app` is what celery's -A looks for


class _Here(threading.local):
    """What this thread works on: where that wants to stop, and whose transaction is open."""

    boundary: str = ""
    step: str = ""


_here = _Here()


def create_app() -> Flask:
    """The HTTP service; a request that is to stop before its answer does so when the answer is ready."""
    service = product.create_app()

    @service.before_request
    def _begin() -> None:
        _here.boundary = g.request_id

    @service.after_request
    def _before_the_answer(response: Response) -> Response:
        _come_to("before-the-answer")
        return response

    return service


def reached(folder: Path, boundary: str) -> int:
    """The id of the process that stands there; 0 while none does."""
    marker = folder / boundary
    return int(marker.read_text() or 0) if marker.exists() else 0


def _come_to(place: str) -> None:
    """Stop here if this is the boundary. A request's may have a suffix, so that several can name the same place."""
    if _here.boundary.partition(".")[0] == place and _leave_marker(_here.boundary):
        _stop()


def _leave_marker(name: str) -> bool:
    """False: an earlier process stood here."""
    try:
        marker = os.open(Path(os.environ["HALTING_FOLDER"]) / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(marker, str(os.getpid()).encode())
    os.close(marker)
    return True


def _stop() -> NoReturn:
    while True:
        threading.Event().wait()


@contextmanager
def _step(name: str) -> Iterator[None]:
    """Around a function that is one transaction."""
    _here.step = name
    try:
        yield
    finally:
        _here.step = ""


def _around(module: Any, name: str, *, step: str) -> None:
    """`before-STEP`, then the function, then `after-STEP`."""
    original = getattr(module, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _come_to(f"before-{step}")
        with _step(step):
            answer = original(*args, **kwargs)
        _come_to(f"after-{step}")
        return answer

    setattr(module, name, wrapped)


def _commit(original: Callable[[DeadlineConnection], None]) -> Callable[[DeadlineConnection], None]:
    """psycopg sends the COMMIT of a pipeline here; its answer is read later."""

    def commit(connection: DeadlineConnection) -> None:
        _come_to(f"before-{_here.step}-commit")
        original(connection)
        _come_to(f"{_here.step}-unanswered")

    return commit


def _patiently(original: Callable[[Database], dict[str, str]]) -> Callable[[Database], dict[str, str]]:
    """PostgreSQL would soon end a transaction that stands before its commit."""
    return lambda database: {**original(database), "idle": "0"}


def _deliver(original: Callable[[Courier, Lease], Any]) -> Callable[[Courier, Lease], Any]:
    def deliver(courier: Courier, lease: Lease) -> Any:
        _here.boundary = lease.correlation_id
        _come_to("after-claim")
        return original(courier, lease)

    return deliver


def _hand_over(original: Callable[..., None]) -> Callable[..., None]:
    """A delivery that is to be released waits here until the process is told to stop."""

    def hand_over(courier: Courier, *args: Any) -> None:
        if "release" in _here.boundary and _leave_marker(f"{_here.boundary}.waiting"):
            while not courier.shutdown.requested:
                threading.Event().wait(0.02)
        original(courier, *args)

    return hand_over


def _settle(original: Callable[..., Any]) -> Callable[..., Any]:
    def settle(database: Any, lease: Lease, result: Any, *args: Any, **kwargs: Any) -> Any:
        step = "release" if result.outcome is Outcome.NOT_SENT else "settle"
        _come_to(f"before-{step}")
        with _step(step):
            answer = original(database, lease, result, *args, **kwargs)
        _come_to(f"after-{step}")
        return answer

    return settle


def _send(original: Callable[[Dialogue, Any], None]) -> Callable[[Dialogue, Any], None]:
    """Commands are text; bytes are the message with its dot."""

    def send(dialogue: Dialogue, said: Any) -> None:
        if isinstance(said, bytes) and _here.boundary == "mid-data":
            original(dialogue, said[: len(said) // 2])
            _come_to("mid-data")
        original(dialogue, said)
        if isinstance(said, bytes):
            _come_to("after-the-dot")

    return send


_around(leases, "hand_over", step="hand-over")
_around(verifications, "create", step="create")
_around(consumption, "consume", step="consume")
leases.settle = _settle(leases.settle)
Courier.deliver = _deliver(Courier.deliver)  # type: ignore[method-assign,assignment]
Courier._hand_over = _hand_over(Courier._hand_over)  # type: ignore[method-assign]
Dialogue.send = _send(Dialogue.send)  # type: ignore[method-assign,assignment]
Database._timeouts = _patiently(Database._timeouts)  # type: ignore[method-assign,assignment]
DeadlineConnection.commit = _commit(DeadlineConnection.commit)  # type: ignore[method-assign,assignment]
