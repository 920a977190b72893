"""What a crash, a pause or a lost server costs: real processes, killed at a known place."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any
from uuid import UUID

import pytest

from db import ids
from dev.redis import Redis
from tests.factories import Factory
from tests.faults.conftest import MakeCluster
from tests.support.cluster import Cluster, wait_for
from tests.support.courier import create
from tests.support.smtp_server import Connection, SmtpServer, accept_silently, hang


class Gate:
    """For a phase of the mail server: says that the first client has come here, and keeps it until opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.reached.set()
        while not self.open.wait(0.02) and not connection.server.stopping.is_set():
            pass
        connection.usual()


def waiting(make: Factory, **overrides: Any) -> UUID:
    delivery_id: UUID = create(make.database, make.key(), **overrides).delivery_id
    return delivery_id


def status(make: Factory, delivery_id: UUID) -> str:
    return str(make.row(delivery_id)["status"])


def wait_for_status(make: Factory, delivery_id: UUID, wanted: str, seconds: float = 30.0) -> None:
    wait_for(lambda: status(make, delivery_id) == wanted, f"{wanted}: {make.row(delivery_id)}", seconds)


def deliveries_of(mail: SmtpServer) -> list[str]:
    """The delivery ids of the mails that arrived, one an arrival."""
    lines = [line for message in mail.messages for line in message.data.splitlines()]
    marker = b"X-Countersign-Delivery: "
    return [line.removeprefix(marker).decode() for line in lines if line.startswith(marker)]


def start_workers(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.start("worker", name)
    cluster.start("beat")


def test_two_workers_and_many_rows_give_one_mail_each(make: Factory, cluster: MakeCluster) -> None:
    made = [waiting(make) for _ in range(30)]
    with SmtpServer() as mail:
        start_workers(cluster(mail), "one", "two")
        for delivery_id in made:
            wait_for_status(make, delivery_id, "accepted")
    assert sorted(deliveries_of(mail)) == sorted(ids.public("dlv", delivery_id) for delivery_id in made)


def test_a_worker_killed_before_the_hand_over_costs_neither_an_unknown_nor_a_duplicate(
    make: Factory, cluster: MakeCluster
) -> None:
    delivery_id = waiting(make)
    gate = Gate()
    with SmtpServer(rcpt=[gate]) as mail:
        processes = cluster(mail)
        first = processes.start("worker", "first")
        processes.start("beat")
        wait_for(gate.reached.is_set, "the recipient's turn")
        os.kill(first.pid, signal.SIGKILL)
        gate.open.set()
        processes.start("worker", "second")
        wait_for_status(make, delivery_id, "accepted")
    assert len(mail.messages) == 1
    attempts = make.attempts(delivery_id)
    assert [attempt["outcome"] for attempt in attempts] == ["lost", "accepted"]
    assert attempts[0]["handed_over_at"] is None
    after = make.all("SELECT after FROM state_changes WHERE delivery_id = %s", delivery_id)
    assert "unknown" not in {change["after"] for change in after}


def test_a_worker_killed_after_the_hand_over_leaves_an_unknown_that_one_replay_of_the_same_mail_resolves(
    make: Factory, cluster: MakeCluster
) -> None:
    delivery_id = waiting(make)
    taken = threading.Event()

    def take_and_hang(connection: Connection) -> None:
        connection.take()
        taken.set()
        hang(connection)

    with SmtpServer(end=[take_and_hang]) as mail:
        processes = cluster(mail, SEND_DEADLINE_SECONDS="2")
        first = processes.start("worker", "first")
        processes.start("beat")
        wait_for(taken.is_set, "the dot")
        os.kill(first.pid, signal.SIGKILL)
        processes.start("worker", "second")
        wait_for_status(make, delivery_id, "unknown")
        assert len(mail.messages) == 1, "no blind resend"
        wait_for_status(make, delivery_id, "accepted")
    first_mail, replay = mail.messages
    assert first_mail.data == replay.data
    assert [attempt["outcome"] for attempt in make.attempts(delivery_id)] == ["lost", "accepted"]
    assert make.row(delivery_id)["replay_count"] == 1


def test_a_server_that_takes_the_mail_and_hangs_past_the_deadline_leaves_an_unknown(
    make: Factory, cluster: MakeCluster
) -> None:
    delivery_id = waiting(make)
    with SmtpServer(end=accept_silently(hang)) as mail:
        start_workers(cluster(mail, EVIDENCE_WINDOW_SECONDS="60"), "one")
        wait_for_status(make, delivery_id, "unknown")
    (attempt,) = make.attempts(delivery_id)
    assert (attempt["outcome"], attempt["stale"]) == ("unknown", False)
    assert (
        attempt["finished_at"] - attempt["handed_over_at"]
        < make.one("SELECT interval '4 s' AS lease")["lease"]
    )


def test_a_worker_paused_past_its_lease_changes_nothing_when_it_wakes(
    make: Factory, cluster: MakeCluster
) -> None:
    delivery_id = waiting(make)
    gate = Gate()
    with SmtpServer(rcpt=[gate]) as mail:
        processes = cluster(mail)
        paused = processes.start("worker", "paused")
        processes.start("beat")
        wait_for(gate.reached.is_set, "the recipient's turn")
        os.kill(paused.pid, signal.SIGSTOP)
        gate.open.set()
        processes.start("worker", "replacement")
        wait_for_status(make, delivery_id, "accepted")
        before = make.row(delivery_id)
        os.kill(paused.pid, signal.SIGCONT)
        wait_for(lambda: make.attempts(delivery_id)[0]["stale"], "the late result")
        assert make.row(delivery_id) == before
    assert len(mail.messages) == 1
    late, winner = make.attempts(delivery_id)
    assert (late["handed_over_at"], winner["outcome"]) == (None, "accepted")


def test_mail_goes_out_with_no_redis_at_all(make: Factory, cluster: MakeCluster, redis: Redis) -> None:
    with SmtpServer() as mail:
        processes = cluster(mail)
        redis.kill()
        made = [waiting(make) for _ in range(8)]
        worker = processes.start("worker")
        for delivery_id in made:
            wait_for_status(make, delivery_id, "accepted")
        worker.ask_to_stop()
        wait_for(lambda: worker.returncode() is not None, "the worker to stop without a broker", 25)
    assert len(mail.messages) == 8


def test_a_worker_hears_kicks_again_after_redis_restarted(
    make: Factory, cluster: MakeCluster, redis: Redis
) -> None:
    with SmtpServer() as mail:
        processes = cluster(mail, SWEEP_INTERVAL_SECONDS="2")
        start_workers(processes, "one")
        wait_for_status(make, waiting(make), "accepted")
        redis.kill()
        wait_for_status(make, waiting(make), "accepted")
        redis.start()
        back = make.one("SELECT now() AS at")["at"]
        wait_for(
            lambda: make.all("SELECT 1 FROM sweep_runs WHERE trigger = 'beat' AND started_at > %s", back),
            "a sweep through the broker",
        )


@pytest.mark.parametrize("signals", [1, 3])
def test_sigterm_under_load_ends_in_time_and_loses_nothing(
    make: Factory, cluster: MakeCluster, signals: int
) -> None:
    made = [waiting(make) for _ in range(40)]
    slow = threading.Event()

    def slowly(connection: Connection) -> None:
        connection.pause(0.3)
        slow.set()
        connection.usual()

    with SmtpServer(end=slowly) as mail:
        processes = cluster(mail)
        worker = processes.start("worker", "first")
        processes.start("beat")
        wait_for(slow.is_set, "sends in flight")
        for number in range(signals):
            if number:
                threading.Event().wait(0.5)  # as the platform does
            worker.ask_to_stop()
        wait_for(lambda: worker.returncode() is not None, "the worker to stop", 15)
        # Python has taken its handlers down by the time a late signal comes to an interpreter that is ending.
        assert worker.returncode() in ({0} if signals == 1 else {0, -signal.SIGTERM})
        leased = make.all("SELECT 1 FROM email_outbox WHERE status IN ('sending', 'unknown')")
        assert leased == [], "what was sent is settled, what was not is released"
        processes.start("worker", "second")
        for delivery_id in made:
            wait_for_status(make, delivery_id, "accepted")
    assert sorted(deliveries_of(mail)) == sorted(ids.public("dlv", delivery_id) for delivery_id in made)


def test_backends_terminated_under_load_lose_nothing(make: Factory, cluster: MakeCluster) -> None:
    made = [waiting(make) for _ in range(40)]
    with SmtpServer(end=lambda connection: (connection.pause(0.05), connection.usual())) as mail:  # type: ignore[arg-type]
        start_workers(cluster(mail), "one")
        for _ in range(5):
            wait_for(lambda: make.all("SELECT 1 FROM email_outbox WHERE status = 'sending'"), "a lease")
            make.execute(
                """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()
                """
            )
        for delivery_id in made:
            wait_for_status(make, delivery_id, "accepted", seconds=60)
    arrived = deliveries_of(mail)
    assert set(arrived) == {ids.public("dlv", delivery_id) for delivery_id in made}
    replays = make.one("SELECT sum(replay_count)::int AS replays FROM email_outbox")["replays"]
    assert len(arrived) - len(set(arrived)) <= replays, "each duplicate is a recorded replay"


def test_a_worker_with_senseless_settings_ends_at_once_and_says_which(
    make: Factory, cluster: MakeCluster
) -> None:
    with SmtpServer() as mail:
        processes = cluster(mail, LEASE_SECONDS="1")
        worker = processes.start("worker")
        wait_for(lambda: worker.returncode() is not None, "the worker to end")
        assert worker.returncode() == 2
        assert "LEASE_SECONDS must be at least" in processes.output()
