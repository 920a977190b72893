"""SIGKILL at each boundary of a delivery: what is on record then, what a fresh worker makes of it, and how many mails came.

One worker process dies once, while each of its slots stands at another boundary (`tests.faults.halting`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from db import ids
from db.session import Database
from dev.postgres import Postgres
from dev.redis import Redis
from tests.factories import Factory
from tests.faults import halting
from tests.support.cluster import Cluster, wait_for
from tests.support.courier import create
from tests.support.environment import environment
from tests.support.smtp_server import SmtpServer

LEASE_SECONDS = 120.0  # it must not end before the test has looked; then time is moved
# However slow the machine is, nothing of this runs out and adds an attempt.
PATIENT = {
    "LEASE_SECONDS": str(LEASE_SECONDS),
    "LEASE_MARGIN_SECONDS": "30",
    "SEND_DEADLINE_SECONDS": "30",
    "STATEMENT_TIMEOUT_SECONDS": "4",
}
IN_TRANSACTION = """
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Boundary:
    """What must be there right after the kill, and in the end. `lost` and `replays` are the row's counters."""

    name: str
    status: str = "sending"
    attempt: tuple[bool, str | None] | None = None  # handed over?, outcome
    mails: int = 0
    outcomes: tuple[str, ...] = ("lost", "accepted")
    mails_in_the_end: int = 1
    attempts: int = 1
    lost: int = 1
    replays: int = 0


def certainly_unsent(name: str) -> Boundary:
    """Nothing left: it begins anew, and costs neither an `unknown` nor a duplicate (G5)."""
    return Boundary(name)


def unanswered(name: str, *, mails: int) -> Boundary:
    """The provider may have it: `unknown`, then one replay, which is a duplicate if it had (G4)."""
    handed_over = (True, None)
    return Boundary(name, attempt=handed_over, mails=mails, mails_in_the_end=mails + 1, attempts=0, replays=1)


def settled(name: str) -> Boundary:
    """It is on record: there is nothing left to do."""
    accepted = (True, "accepted")
    return Boundary(name, "accepted", accepted, mails=1, outcomes=("accepted",), lost=0)


def released(name: str) -> Boundary:
    """Told to stop, it gave its lease back: as if it had not been claimed."""
    not_sent = (False, "not_sent")
    return Boundary(name, "pending", not_sent, outcomes=("not_sent", "accepted"), lost=0)


BOUNDARIES = (
    certainly_unsent("after-claim"),
    certainly_unsent("before-hand-over"),
    certainly_unsent("before-hand-over-commit"),
    unanswered("hand-over-unanswered", mails=0),
    unanswered("after-hand-over", mails=0),
    unanswered("mid-data", mails=0),
    unanswered("after-the-dot", mails=1),
    unanswered("before-settle", mails=1),
    unanswered("before-settle-commit", mails=1),
    settled("settle-unanswered"),
    settled("after-settle"),
    certainly_unsent("before-release-commit"),
    released("release-unanswered"),
    released("after-release"),
)
RELEASED = [boundary.name for boundary in BOUNDARIES if "release" in boundary.name]


@dataclass
class Scene:
    """One database, one mail server; where each delivery stood right after the kill and in the end."""

    make: Factory
    mail: SmtpServer
    cluster: Cluster
    markers: Path
    deliveries: dict[str, UUID] = field(default_factory=dict)
    killed: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, Any] = field(default_factory=dict)
    in_transaction: int = 0  # sessions, at the kill

    def until_all_stand(self, *names: str) -> None:
        give_time(lambda: all(halting.reached(self.markers, name) for name in names))

    def look(self) -> dict[str, Any]:
        return {name: self._look(delivery_id) for name, delivery_id in self.deliveries.items()}

    def _look(self, delivery_id: UUID) -> dict[str, Any]:
        row = self.make.row(delivery_id)
        marker = f"X-Countersign-Delivery: {ids.public('dlv', delivery_id)}\r\n".encode()
        changes = self.make.all("SELECT after FROM state_changes WHERE delivery_id = %s", delivery_id)
        return {
            "row": row,
            "attempts": self.make.attempts(delivery_id),
            "mails": [message.data for message in self.mail.messages if marker in message.data],
            "was_unknown": "unknown" in {change["after"] for change in changes},
        }


@pytest.fixture(scope="module")
def scene(
    postgres: Postgres, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    url = postgres.create_database("kill_points", template="migrated")
    markers = tmp_path_factory.mktemp("markers")
    with ExitStack() as stack:
        stack.callback(postgres.drop_database, "kill_points")
        mail = stack.enter_context(SmtpServer())
        mail_url = f"smtp://127.0.0.1:{mail.port}"
        given = environment(url, redis_server.url(), mail_url, HALTING_FOLDER=str(markers), **PATIENT)
        cluster = stack.enter_context(Cluster(given))
        database = Database(url, statement_timeout=4.0, size=2)
        stack.callback(database.close)
        played = Scene(Factory(database), mail, cluster, markers)
        play(played)
        yield played


def play(scene: Scene) -> None:
    make = scene.make
    for boundary in BOUNDARIES:
        made = create(make.database, make.key(), correlation_id=boundary.name)
        scene.deliveries[boundary.name] = made.delivery_id
    kill_where_they_stand(scene)
    scene.killed = scene.look()
    for leased in make.all("SELECT id FROM email_outbox WHERE status = 'sending'"):
        make.pass_time(leased["id"], seconds=LEASE_SECONDS)
    scene.cluster.start("worker", "fresh")
    open_ones = "SELECT id FROM email_outbox WHERE status NOT IN ('accepted', 'failed', 'expired')"
    give_time(lambda: not make.all(open_ones))
    scene.ended = scene.look()


def kill_where_they_stand(scene: Scene) -> None:
    commands = scene.cluster.commands
    usual = commands["worker"]
    commands["worker"] = usual.replace("tasks.celery_app", "tests.faults.halting")
    worker = scene.cluster.start("worker", "killed", WORKER_SLOTS=str(len(BOUNDARIES)))
    commands["worker"] = usual
    others = (boundary.name for boundary in BOUNDARIES if boundary.name not in RELEASED)
    scene.until_all_stand(*others, *(f"{name}.waiting" for name in RELEASED))
    worker.ask_to_stop()
    scene.until_all_stand(*RELEASED)
    give_time(lambda: len(scene.mail.messages) >= sum(boundary.mails for boundary in BOUNDARIES), seconds=5)
    scene.in_transaction = len(scene.make.all(IN_TRANSACTION))
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: worker.returncode() == -signal.SIGKILL, "the worker's death")
    wait_until_the_dead_hold_nothing(scene.make)


def give_time(check: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait for it; if it does not come, the tests of the boundaries say for which."""
    with suppress(AssertionError):
        wait_for(check, "", seconds)


def wait_until_the_dead_hold_nothing(make: Factory) -> None:
    """Until PostgreSQL has read what the dead had sent, and has rolled the rest back."""
    wait_for(lambda: not make.all(IN_TRANSACTION), "the dead process's sessions to end")


each_boundary = pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda boundary: boundary.name)


@each_boundary
def test_killed_there_this_is_on_record(scene: Scene, boundary: Boundary) -> None:
    assert halting.reached(scene.markers, boundary.name), "nobody came there"
    found = scene.killed[boundary.name]
    attempts = [(bool(each["handed_over_at"]), each["outcome"]) for each in found["attempts"]]
    assert found["row"]["status"] == boundary.status
    assert attempts == ([boundary.attempt] if boundary.attempt else [])
    assert counters(found) == (int(boundary.status == "accepted"), 0, 0)
    assert len(found["mails"]) == boundary.mails


@each_boundary
def test_killed_there_a_fresh_worker_ends_it(scene: Scene, boundary: Boundary) -> None:
    found = scene.ended[boundary.name]
    assert (found["row"]["status"], found["row"]["evidence"]) == ("accepted", "response")
    assert tuple(attempt["outcome"] for attempt in found["attempts"]) == boundary.outcomes
    assert counters(found) == (boundary.attempts, boundary.lost, boundary.replays)
    assert len(found["mails"]) == boundary.mails_in_the_end
    assert len(set(found["mails"])) == 1, "a replay is the same bytes"
    assert found["was_unknown"] == bool(boundary.replays), "a duplicate is on record, and only that"


def counters(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["row"]["attempt_count"], found["row"]["lost_count"], found["row"]["replay_count"]


def test_who_stood_before_a_commit_was_in_a_transaction(scene: Scene) -> None:
    before = [boundary.name for boundary in BOUNDARIES if boundary.name.endswith("commit")]
    assert scene.in_transaction >= len(before) == 3


def test_a_mail_that_broke_off_is_no_mail(scene: Scene) -> None:
    whole = [event for event in scene.mail.log.events if event.endswith(" dot")]
    begun = [event for event in scene.mail.log.events if event.endswith(" DATA")]
    assert len(begun) > len(whole) == len(scene.mail.messages)


def test_what_was_settled_is_not_touched_again(scene: Scene) -> None:
    for name in ("settle-unanswered", "after-settle"):
        assert scene.killed[name] == scene.ended[name]
