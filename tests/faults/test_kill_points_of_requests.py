"""SIGKILL at each boundary of a request and of a confirmation: all of it is on record or nothing, and asking again is safe.

One web process dies once, while each of its threads stands at another boundary (`tests.faults.halting`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from db import ids
from db.delivery_state import Outcome
from db.session import Database
from dev.postgres import Postgres
from dev.redis import Redis
from tests.factories import Factory
from tests.faults import halting
from tests.faults.test_kill_points import IN_TRANSACTION, PATIENT, give_time, wait_until_the_dead_hold_nothing
from tests.support.api import token_of
from tests.support.cluster import Cluster, wait_for
from tests.support.courier import create
from tests.support.environment import environment
from tests.support.races import Later
from tests.support.smtp_server import SmtpServer, unused_port

# Boundary -> whether all of it is committed there. Whoever stands before a commit comes last: it holds locks.
CREATE = {
    "create-unanswered": True,
    "after-create": True,  # before the kick
    "before-the-answer.create": True,
    "before-create-commit": False,
}
CONSUME = {
    "consume-unanswered": True,
    "before-the-answer.consume": True,
    "before-consume-commit": False,
}
BEFORE = {"status": "requested", "delivery": "unknown", "evidence": None, "active": False, "changes": 0}
AFTER = {"status": "consumed", "delivery": "accepted", "evidence": "consumed", "active": True, "changes": 1}


@dataclass
class Scene:
    """What was on record right after the kill, and what asking again was answered."""

    make: Factory
    url: str
    mail: SmtpServer
    verifications: dict[str, UUID] = field(default_factory=dict)
    unheard: dict[str, Later[httpx.Response]] = field(default_factory=dict)
    killed: dict[str, Any] = field(default_factory=dict)
    in_transaction: int = 0  # sessions, at the kill
    mailed: list[str] = field(default_factory=list)
    again: dict[str, httpx.Response] = field(default_factory=dict)
    twice: dict[str, httpx.Response] = field(default_factory=dict)

    def ask(self, boundary: str) -> httpx.Response:
        """The request or the confirmation of this boundary."""
        if boundary in CREATE:
            return self._create(boundary)
        token = token_of(self.make.database, ids.public("ver", self.verifications[boundary]))
        return self._post("/v1/tokens/consume", boundary, {"token": token})

    def _create(self, boundary: str) -> httpx.Response:
        body = {"account_id": boundary, "email": address(boundary)}
        headers = {"Idempotency-Key": boundary, "Authorization": f"Bearer {self.make.key()}"}
        return self._post("/v1/verifications", boundary, body, **headers)

    def _post(self, path: str, boundary: str, body: dict[str, str], **headers: str) -> httpx.Response:
        named = {"X-Request-ID": boundary, **headers}
        return httpx.post(f"{self.url}{path}", json=body, headers=named, timeout=30)

    def requested(self, boundary: str) -> list[dict[str, Any]]:
        """What is on record of a request."""
        return self.make.all(
            """
            SELECT v.id, v.status, o.status AS delivery FROM verifications v
            JOIN email_outbox o ON o.verification_id = v.id WHERE v.idempotency_key = %s
            """,
            boundary,
        )

    def confirmed(self, boundary: str) -> dict[str, Any]:
        """What is on record of a confirmation, in every table it touches."""
        return self.make.one(
            """
            SELECT v.status, o.status AS delivery, o.evidence, a.activated_at IS NOT NULL AS active,
                   (SELECT count(*) FROM state_changes s WHERE s.verification_id = v.id AND s.after = 'consumed') AS changes
            FROM verifications v JOIN email_outbox o ON o.verification_id = v.id JOIN accounts a ON a.id = v.account_id
            WHERE v.id = %s
            """,
            self.verifications[boundary],
        )


def address(boundary: str) -> str:
    return f"{boundary}@example.com"


@pytest.fixture(scope="module")
def scene(
    postgres: Postgres, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    database_url = postgres.create_database("kill_points_of_requests", template="migrated")
    markers, port = tmp_path_factory.mktemp("markers"), unused_port()
    with ExitStack() as stack:
        stack.callback(postgres.drop_database, "kill_points_of_requests")
        mail = stack.enter_context(SmtpServer())
        cluster = stack.enter_context(
            Cluster(
                environment(
                    database_url,
                    redis_server.url(),
                    f"smtp://127.0.0.1:{mail.port}",
                    HALTING_FOLDER=str(markers),
                    PORT=str(port),
                    WEB_CONCURRENCY="1",
                    **PATIENT,
                )
            )
        )
        database = Database(database_url, statement_timeout=4.0, size=4)
        stack.callback(database.close)
        played = Scene(Factory(database), f"http://127.0.0.1:{port}", mail)
        play(played, cluster, markers)
        yield played


def play(scene: Scene, cluster: Cluster, markers: Path) -> None:
    for boundary in CONSUME:
        scene.verifications[boundary] = await_evidence(scene.make)
    kill_where_they_stand(scene, cluster, markers)
    scene.killed = {name: scene.requested(name) for name in CREATE} | {
        name: scene.confirmed(name) for name in CONSUME
    }
    cluster.start("worker")
    committed = [address(name) for name, is_committed in CREATE.items() if is_committed]
    give_time(lambda: len(scene.mail.messages) >= len(committed), seconds=15)
    scene.mailed = [message.rcpt_to for message in scene.mail.messages]
    scene.again = {name: scene.ask(name) for name in (*CREATE, *CONSUME)}
    give_time(lambda: len(scene.mail.messages) >= len(CREATE), seconds=15)
    scene.twice = {name: scene.ask(name) for name in (*CREATE, *CONSUME)}


def await_evidence(make: Factory) -> UUID:
    """A verification whose mail may have arrived: using its token changes three tables."""
    made = create(make.database, make.key())
    lease = make.claim(made.delivery_id)
    make.hand_over(lease)
    make.settle(lease, Outcome.UNKNOWN, "reply_timeout")
    return made.id


def kill_where_they_stand(scene: Scene, cluster: Cluster, markers: Path) -> None:
    cluster.commands["web"] = cluster.commands["web"].replace(
        "app:create_app()", "tests.faults.halting:create_app()"
    )
    cluster.start("web", REDIS_URL="redis://127.0.0.1:1/0")  # whoever kicked before the kill, kicked in vain
    wait_for(lambda: is_up(scene.url), "the web process")
    for name in (*CREATE, *CONSUME):
        scene.unheard[name] = Later(lambda name=name: scene.ask(name))  # type: ignore[misc]
        give_time(lambda name=name: halting.reached(markers, name), seconds=5)  # type: ignore[misc]
    scene.in_transaction = len(scene.make.all(IN_TRANSACTION))
    process = max(halting.reached(markers, name) for name in scene.unheard)
    assert process, "nobody came anywhere"
    os.kill(process, signal.SIGKILL)  # gunicorn starts another
    wait_until_the_dead_hold_nothing(scene.make)


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").is_success
    except httpx.TransportError:
        return False


each_create = pytest.mark.parametrize("boundary", CREATE)
each_consume = pytest.mark.parametrize("boundary", CONSUME)


@pytest.mark.parametrize("boundary", [*CREATE, *CONSUME])
def test_killed_there_the_caller_hears_nothing(scene: Scene, boundary: str) -> None:
    with pytest.raises(httpx.TransportError):
        scene.unheard[boundary].result()


def test_who_stood_before_a_commit_was_in_a_transaction(scene: Scene) -> None:
    assert scene.in_transaction >= 2


@each_create
def test_killed_there_a_request_is_on_record_whole_or_not_at_all(scene: Scene, boundary: str) -> None:
    found = [(row["status"], row["delivery"]) for row in scene.killed[boundary]]
    assert found == ([("requested", "pending")] if CREATE[boundary] else [])


@each_create
def test_killed_there_what_was_committed_is_mailed_though_nobody_asks_again(
    scene: Scene, boundary: str
) -> None:
    assert scene.mailed.count(address(boundary)) == int(CREATE[boundary])


@each_create
def test_killed_there_asking_again_makes_what_is_missing_and_nothing_twice(
    scene: Scene, boundary: str
) -> None:
    again, twice = scene.again[boundary], scene.twice[boundary]
    assert (again.status_code, twice.status_code) == (202, 202)
    assert ("Idempotent-Replayed" in again.headers) == CREATE[boundary]
    assert twice.headers["Idempotent-Replayed"] == "true"
    (made,) = scene.requested(boundary)
    shown = ids.public("ver", made["id"])
    assert again.json()["verification_id"] == twice.json()["verification_id"] == shown
    assert [row["id"] for row in scene.killed[boundary]] in ([], [made["id"]])
    assert [message.rcpt_to for message in scene.mail.messages].count(address(boundary)) == 1


@each_consume
def test_killed_there_a_confirmation_is_on_record_whole_or_not_at_all(scene: Scene, boundary: str) -> None:
    assert scene.killed[boundary] == (AFTER if CONSUME[boundary] else BEFORE)


@each_consume
def test_killed_there_the_token_still_counts_exactly_once(scene: Scene, boundary: str) -> None:
    again, twice = scene.again[boundary], scene.twice[boundary]
    assert again.status_code == (409 if CONSUME[boundary] else 200)
    refused = [answer.json()["code"] for answer in (again, twice) if answer.status_code == 409]
    assert set(refused) == {"verification_already_used"} and twice.status_code == 409
    assert scene.confirmed(boundary) == AFTER
