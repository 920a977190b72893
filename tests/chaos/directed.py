"""Scripted faults, each at the moment that a missing rule would make it hurt. No chance: every step waits for a state."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from dev.children import Child
from tests.chaos import ledger
from tests.chaos.book import Asked, Book
from tests.chaos.facts import Breach, Facts, Terms, install_witness, unsettled
from tests.chaos.mailbox import Mailbox, MoodyServer
from tests.factories import Factory
from tests.support.cluster import Cluster, wait_for
from tests.support.courier import create
from tests.support.environment import environment
from tests.support.smtp_server import Action, Connection

SETTINGS = {
    "LEASE_SECONDS": "4.5",
    "LEASE_MARGIN_SECONDS": "1",
    "SEND_DEADLINE_SECONDS": "2.5",
    "EVIDENCE_WINDOW_SECONDS": "1.5",
    "RETRY_BACKOFF_SECONDS": "0.5",
    "SWEEP_INTERVAL_SECONDS": "0.5",
    "WORKER_SLOTS": "2",
}
TERMS = Terms(
    lease=4.5, evidence_window=1.5, max_attempts=6, min_token_life=300.0, delivery_deadline=14_400.0
)
_MARGIN_SECONDS = 0.8  # beyond what the ledger forgives between two leases
_KEY = "key-1"


class ScriptedServer(MoodyServer):
    """A mail server that does what the script says, the first time one thing, the second time another."""

    def __init__(self, mailbox: Mailbox) -> None:
        super().__init__("mail1", mailbox)
        self.script: dict[str, list[Action]] = {}

    def action(self, phase: str) -> Action:
        planned = self.script.get(phase)
        return planned.pop(0) if planned else super().action(phase)


class Gate:
    """Holds a dialogue until it is opened, then replies."""

    def __init__(self, reply: str = "") -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self._reply = reply

    def __call__(self, connection: Connection) -> None:
        self.reached.set()
        while not self.open.wait(0.02) and not connection.server.stopping.is_set():
            pass
        if self._reply:
            connection.write(f"{self._reply}\r\n".encode())
        else:
            connection.usual()


class Stage:
    """One delivery, its mail server, workers with a rule missing or not, and the ledger."""

    def __init__(self, make: Factory, database_url: str, redis_url: str, sabotage: str) -> None:
        self.make, self._sabotage = make, sabotage
        self._database_url, self._redis_url = database_url, redis_url
        self.mailbox, self.book = Mailbox(), Book()
        self.mail = ScriptedServer(self.mailbox)
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        install_witness(self._database_url)
        self._stack.enter_context(self.mail)
        mail_url = f"smtp://127.0.0.1:{self.mail.port}?label=mail1"
        given = environment(self._database_url, self._redis_url, mail_url, **SETTINGS)
        self.cluster = self._stack.enter_context(Cluster(given))
        start = shlex.join([sys.executable, "-m", "tests.chaos.sabotage", self._sabotage])
        self.cluster.commands["worker"] = self.cluster.commands["worker"].replace("celery", start, 1)
        self.book.ask(Asked(_KEY, "account", "person@example.com", "signup"))
        self.delivery_id: UUID = create(
            self.make.database, self.make.key(), idempotency_key=_KEY, account_id="account"
        ).delivery_id
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def worker(self, name: str, **changed: str) -> Child:
        return self.cluster.start("worker", name, **changed)

    def attempt(self, lease: int) -> Mapping[str, Any]:
        """One attempt's row; empty where there is none."""
        rows = self.make.attempts(self.delivery_id)
        return next((row for row in rows if row["lease_token"] == lease), {})

    def wait(self, check: Callable[[], Any], what: str, seconds: float = 20.0) -> None:
        wait_for(check, f"{what}: {self.make.row(self.delivery_id)}", seconds)

    def come_to_rest(self) -> None:
        """Until the delivery has ended."""
        self.wait(lambda: not unsettled(self._database_url), "the delivery's end")

    def breaks(self, guarantee: str) -> bool:
        """Whether the ledger, as it stands now, finds it broken."""
        return guarantee in {breach.guarantee for breach in self.breaches()}

    def breaches(self) -> list[Breach]:
        """What the ledger says; of the client's book only the request is kept here, and the feed is not read."""
        facts = Facts.read(self._database_url, self.mailbox.mails, self.book, TERMS)
        return [b for b in ledger.check(facts) if b.guarantee != "feed" and "never answered" not in b.text]


def late_result(stage: Stage) -> None:
    """A worker is frozen before its hand-over; its lease passes to another, and then it says how its own try ended."""
    first, second = Gate("550 5.1.1 nobody"), Gate()
    stage.mail.script["rcpt"] = [first, second]
    frozen = stage.worker("frozen")
    stage.wait(first.reached.is_set, "the first lease")
    os.kill(frozen.pid, signal.SIGSTOP)
    stage.worker("next")
    stage.wait(second.reached.is_set, "the second lease")
    begun = time.monotonic()
    first.open.set()
    stage.wait(lambda: time.monotonic() > begun + _MARGIN_SECONDS, "the second lease to be well under way")
    os.kill(frozen.pid, signal.SIGCONT)
    stage.wait(lambda: stage.attempt(1)["outcome"] != "lost", "the late result")
    second.open.set()


def plain_send(stage: Stage) -> None:
    """Nothing happens at all."""
    stage.worker("only")
    stage.wait(lambda: stage.mailbox.mails, "the mail")


def killed_after_the_dot(stage: Stage) -> None:
    """A worker dies while the server, which has the mail, has not answered yet."""
    taken = threading.Event()

    def take_and_hang(connection: Connection) -> None:
        stage.mail.note(connection, "nothing")
        taken.set()
        connection.wait_for_end()

    stage.mail.script["end"] = [take_and_hang]
    worker = stage.worker("killed")
    stage.wait(taken.is_set, "the dot")
    os.kill(worker.pid, signal.SIGKILL)
    stage.worker("next")


def frozen_after_the_hand_over(stage: Stage) -> None:
    """A worker is frozen between its hand-over and the mail's bytes, and wakes when another has delivered the mail."""
    frozen = stage.worker("frozen", CHAOS_FREEZE="1")
    stage.wait(lambda: _state(frozen.pid) == "T", "the hand-over")
    stage.worker("next")
    stage.wait(lambda: stage.make.row(stage.delivery_id)["status"] == "accepted", "the replay")
    over = stage.attempt(1)["handed_over_at"].timestamp() + TERMS.lease + TERMS.slack
    stage.wait(lambda: time.time() > over + _MARGIN_SECONDS, "more than the ledger forgives")
    os.kill(frozen.pid, signal.SIGCONT)
    stage.wait(lambda: stage.attempt(1)["outcome"] != "lost", "what the frozen worker says")


def _state(pid: int) -> str:
    """A process's state as the kernel has it: `T` for one that is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


# What shows that a rule is missing, and the guarantee that the ledger then finds broken.
SCENARIOS: dict[str, tuple[Callable[[Stage], None], str]] = {
    "fence": (late_result, "G2"),
    "stamp": (plain_send, "G5"),
    "sticky": (killed_after_the_dot, "G4"),
    "local_fence": (frozen_after_the_hand_over, "G2"),
}
