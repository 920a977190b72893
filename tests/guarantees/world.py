"""Everything around one database: clients, people, providers, workers and the sweep, each doing one thing at a time.

The workers run the product's own courier, stopped wherever a step says; the rest calls the product's own functions. After
every commit of any of them the guarantees are checked. What happened is told in `story`, in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from db import (
    changes,
    consumption,
    endings,
    ids,
    operations,
    provider_events,
    receipts,
    tokens,
    verifications,
)
from db.clients import create as create_client
from db.config import CreateLimits
from db.errors import CommitUnknown, CountersignError, DatabaseUnavailable
from db.operations import Operator
from db.phases import CancelledBy
from db.provider_events import Event, Kind
from db.session import Database
from db.stakes import RetryTerms, Verdict
from tasks import runtime, sweep
from tasks.brandings import Brandings
from tasks.delivery import Courier
from tasks.message import Sender
from tasks.providers.base import OutgoingMail
from tasks.routes import LIVE, TEST
from tasks.shutdown import Shutdown
from tasks.slots import Slots
from tests.factories import KEYED, SEARCHABLE, SMTP, Factory
from tests.guarantees import promises
from tests.guarantees.clock import Clock
from tests.guarantees.lossy import Commit, LossyDatabase
from tests.guarantees.process import Process, point
from tests.guarantees.promises import Snapshot
from tests.guarantees.provider import FakeProvider, Taken
from tests.support.courier import DATABASE_SETTINGS, SETTINGS, request

CLIENTS = ("alpha", "beta")
# In order of preference, by worker: two releases of a configuration run side by side.
WORKERS = ((SMTP, KEYED, SEARCHABLE), (SEARCHABLE, KEYED, SMTP))
SLOTS = (0, 0, 1)  # which worker each of the three sending slots belongs to
_TABLES = "clients, provider_status, state_changes, sweep_runs, provider_events, suppressions, releases"
_LIMITS = CreateLimits(cooldown=5.0, max_waiting=0, account=0, address=0, client=0, caller=0)
_CREATE = replace(DATABASE_SETTINGS, limits=_LIMITS)
_WORKER = replace(
    SETTINGS,
    lease=90.0,
    lease_margin=5.0,
    send_deadline=15.0,
    max_attempts=4,
    unknown_backoff=(30.0, 120.0, 600.0),
)
_OPERATOR = Operator("on-call", "a test says so")
_RETRY = RetryTerms(delivery_deadline=14_400.0, min_token_life=300.0)
_LINK = re.compile(r"verify#([0-9A-Z-]{19})")


class World:
    """One run, in the database at `url`, whose clock can be moved. `make` reads it beside all that happens."""

    def __init__(self, make: Factory, url: str, clock: Clock) -> None:
        self.make, self.url, self.clock = make, url, clock
        self.database = LossyDatabase(url, statement_timeout=4.0, size=4)
        self.story: list[str] = []
        self.broken: list[AssertionError] = []
        clock.reset()
        make.execute(f"TRUNCATE {_TABLES} CASCADE")
        make.execute("UPDATE change_counter SET seq = 0")
        self.state = Snapshot.read(make)
        self.database.committed = self._committed
        self.keys = [create_client(self.database, name).key for name in CLIENTS]
        self.asked: dict[tuple[int, str], UUID] = {}  # (client, idempotency key) -> verification
        self.requests: list[tuple[int, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.providers = {
            traits.name: FakeProvider(traits, clock, self._bytes_arrive) for traits in WORKERS[0]
        }
        self.couriers = [self._courier(traits) for traits in WORKERS]
        self.slots: list[Process | None] = [None] * len(SLOTS)

    # Clients.

    def ask(self, client: int, account: int, mailbox: int, *, commit: Commit, **body: Any) -> None:
        """A client asks for a verification; when it hears nothing it asks again with the same key."""
        body = {
            "account_id": f"account {account}",
            "email": f"person-{mailbox}@example.com",
            "email_canonical": f"person-{mailbox}@example.com",
            "idempotency_key": f"key {len(self.requests)}",
            **body,
        }
        self.requests.append((client, body))
        self._create(client, body, commit)

    def ask_again(self, which: int, *, commit: Commit, **other: Any) -> None:
        """An earlier request once more; `other` makes it another one with the same key."""
        if self.requests:
            client, body = self.requests[which % len(self.requests)]
            self._create(client, {**body, **other}, commit)

    def _create(self, client: int, body: dict[str, Any], commit: Commit) -> None:
        self.say(f"client {CLIENTS[client]} asks for {body['account_id']}, {body['email']} ({commit})")
        attempt = partial(verifications.create, self.database, self.keys[client], request(**body), _CREATE)
        with self._refusable():
            with self._next_commit(commit):
                created = attempt()
            key = client, body["idempotency_key"]
            found = self.asked.setdefault(key, created.verification.id)
            assert found == created.verification.id, "G1: one key, two verifications"
            assert self.state.verifications[found]["idempotency_key"] == key[1]

    def cancel(self, which: int, *, by: CancelledBy, commit: Commit) -> None:
        if verification := self._verification(which):
            self.say(f"{by} cancels {self.name(verification['id'])} ({commit})")
            with self._refusable(), self._next_commit(commit):
                endings.cancel(self.database, verification["client_id"], verification["id"], by=by)

    # Operators.

    def retry(self, which: int) -> None:
        """An operator has a delivery tried anew."""
        if verification := self._verification(which):
            self.say(f"an operator retries {self.name(verification['id'])}")
            with self._refusable():
                operations.retry(self.database, self._delivery_of(verification["id"]), _OPERATOR, _RETRY)

    def resolve(self, which: int, verdict: Verdict) -> None:
        """An operator says what became of an unanswered hand-over."""
        if verification := self._verification(which):
            self.say(f"an operator resolves {self.name(verification['id'])} as {verdict}")
            with self._refusable():
                operations.resolve(self.database, self._delivery_of(verification["id"]), verdict, _OPERATOR)

    def suppress(self, mailbox: int) -> None:
        """A mailbox of the first client's is not to be written to any more."""
        self.say(f"person-{mailbox}@example.com is suppressed")
        self.make.execute(
            "INSERT INTO suppressions (id, client_id, email_canonical, reason) SELECT %s, id, %s, 'bounced' FROM clients "
            "WHERE name = %s ON CONFLICT DO NOTHING",
            ids.new_id(),
            f"person-{mailbox}@example.com",
            CLIENTS[0],
        )

    # People.

    def use(self, which: int, *, commit: Commit) -> None:
        """Somebody reads a mail and presses the button."""
        if self.mails:
            taken = self.mails[which % len(self.mails)]
            link = _LINK.search(taken.mail.text)
            assert link is not None
            self._consume(link[1], f"the reader of {self._of_key(taken.delivery_key)}", commit)

    def leak(self, which: int, *, commit: Commit) -> None:
        """Somebody uses a token that was in no mail they got."""
        if verification := self._verification(which):
            row = verification["token_key_id"], verification["id"], verification["email"]
            if verification["email"] is not None:
                token = tokens.derive(_CREATE.token_keys, *row, bytes(verification["token_nonce"]))
                self._consume(token, f"who knows the token of {self.name(verification['id'])}", commit)

    def disown(self, which: int) -> None:
        """Somebody reads a mail and says that they did not ask for it."""
        if self.mails:
            taken = self.mails[which % len(self.mails)]
            link = _LINK.search(taken.mail.text)
            token = tokens.normalise(link[1]) if link else None
            assert token is not None
            self.say(f"the reader of {self._of_key(taken.delivery_key)} did not ask for it")
            with self._refusable():
                consumption.revoke(self.database, token)

    def _consume(self, text: str, who: str, commit: Commit) -> None:
        token = tokens.normalise(text)
        assert token is not None
        self.say(f"{who} confirms ({commit})")
        with self._refusable(), self._next_commit(commit):
            consumption.consume(self.database, token)

    # Providers by themselves.

    def report(self, which: int, kind: Kind, *, by: str | None, again: bool) -> None:
        """A webhook about a mail, or one that was received before; `by` a provider that may never have had the mail."""
        if again and self.events:
            event = self.events[which % len(self.events)]
        elif self.mails:
            taken = self.mails[which % len(self.mails)]
            delivery_id = ids.parse("dlv", taken.delivery_key)
            assert delivery_id is not None
            event = Event(by or taken.provider, f"event {len(self.events)}", delivery_id, kind)
            self.events.append(event)
        else:
            return
        self.say(
            f"{event.provider} reports {event.kind} of {self.name(event.delivery_id)} ({event.event_id})"
        )
        provider_events.record(self.database, event)

    @property
    def mails(self) -> list[Taken]:
        """Every copy that any provider took."""
        return [taken for provider in self.providers.values() for taken in provider.taken]

    # Workers and the sweep.

    def work(self, slot: int, mood: str, until: str | None, commit: Commit) -> None:
        """A slot goes on from where it stands, or takes the next delivery; providers answer as `mood` says."""
        process, worker = self.slots[slot], SLOTS[slot]
        if process is None:
            process = self.slots[slot] = Process(partial(self._deliver_next, worker, slot))
        for provider in self.providers.values():
            provider.mood = mood
        where = f"from {process.at!r} to {until or 'the end'!r}"
        self.say(f"slot {slot} of worker {worker} goes on {where}; a provider {mood} ({commit})")
        with self._next_commit(commit, self.couriers[worker].database):
            process.go(until)
        if process.at is None:
            self.slots[slot] = None

    def _deliver_next(self, worker: int, slot: int) -> None:
        # As a drain does: without the database it ends, and somebody else will ask again.
        with suppress(DatabaseUnavailable):
            self.couriers[worker].deliver_next(f"worker-{worker}:{slot}")

    def kill(self, slot: int) -> None:
        """A slot's process dies where it stands."""
        if process := self.slots[slot]:
            self.say(f"slot {slot} is killed at {process.at!r}")
            process.kill()
            self.slots[slot] = None

    def sweep(self, worker: int) -> None:
        """The sweep, as a worker runs it."""
        counts = sweep.run_once(self.couriers[worker], trigger="timer")
        moved = {name: count for name, count in (counts or {}).items() if count}
        self.say(f"worker {worker} sweeps: {moved or 'nothing' if counts is not None else 'done already'}")

    def let_pass(self, seconds: float) -> None:
        """Time goes on."""
        self.clock.move(seconds)
        self.say(f"{timedelta(seconds=seconds)} pass")

    # Telling and checking.

    def say(self, what: str) -> None:
        self.story.append(f"+{timedelta(seconds=int(self.clock.ahead))!s:>15}  {what}")

    def name(self, some_id: UUID) -> str:
        """A verification's or delivery's number in this run."""
        for number, verification in enumerate(self._in_order(), 1):
            delivery = self._delivery_of(verification["id"])
            if some_id in {verification["id"], delivery}:
                return f"{'ver' if some_id == verification['id'] else 'dlv'} {number}"
        return str(some_id)

    def _of_key(self, delivery_key: str) -> str:
        found = ids.parse("dlv", delivery_key)
        assert found is not None
        return self.name(found)

    def check(self) -> None:
        """Raise what a commit of the last step broke, and read a receipt."""
        if self.broken:
            raise self.broken[0]
        for verification_id, client_id in [(v["id"], v["client_id"]) for v in self._in_order()][-2:]:
            receipt = receipts.read_receipt(self.database, client_id, verification_id)
            times = [entry.at for entry in receipt.timeline]
            assert times == sorted(times) and receipt.next_action.text

    def _committed(self) -> None:
        """After each commit, whoever's: the guarantees. Kept for later, since the product survives what is raised here."""
        before, self.state = self.state, Snapshot.read(self.make)
        try:
            promises.check_step(before, self.state)
            promises.check_state(self.state)
        except AssertionError as error:
            self.broken.append(error)

    def _bytes_arrive(self, provider: str, mail: OutgoingMail) -> None:
        """G2, G4, G5: bytes leave for the lease's holder only, and each copy is on record before it can exist."""
        delivery_id = ids.parse("dlv", mail.delivery_key)
        assert delivery_id is not None
        state = Snapshot.read(self.make)
        row, attempts = state.deliveries[delivery_id], state.of(delivery_id)
        handed_over = [attempt for attempt in attempts if attempt["handed_over_at"]]
        copies = sum(taken.delivery_key == mail.delivery_key for taken in self.mails)
        try:
            held = row["status"] == "sending" and row["lease_until"] > state.now
            assert held or row["evidence"], "G2: bytes leave without a lease"
            assert handed_over and handed_over[-1]["provider"] == provider, (
                "G5: bytes leave before the hand-over"
            )
            assert copies < len(handed_over), "G4: a copy that no attempt explains"
        except AssertionError as error:
            self.broken.append(error)

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        """What the product refuses is an ordinary answer; its words go into the story."""
        before = self.state
        try:
            yield
        except CommitUnknown:
            self.say("  no answer: it may have happened")
        except CountersignError as error:
            self.say(f"  refused: {type(error).__name__}")
            assert self.state.verifications == before.verifications, "G7: a refusal changed a verification"
            assert self.state.deliveries == before.deliveries, "G7: a refusal changed a delivery"
            assert self.state.accounts == before.accounts, "G7: a refusal changed an account"

    @contextmanager
    def _next_commit(self, commit: Commit, database: Database | None = None) -> Iterator[None]:
        lossy = database or self.database
        assert isinstance(lossy, LossyDatabase)
        lossy.next_commit = commit
        try:
            yield
        finally:
            lossy.next_commit = "answered"

    def _in_order(self) -> list[dict[str, Any]]:
        return sorted(self.state.verifications.values(), key=lambda row: (row["created_at"], row["id"]))

    def _verification(self, which: int) -> dict[str, Any] | None:
        rows = self._in_order()
        return rows[-1 - which % len(rows)] if rows else None

    def _delivery_of(self, verification_id: UUID) -> UUID:
        rows = self.state.deliveries.values()
        found: UUID = next(row["id"] for row in rows if row["verification_id"] == verification_id)
        return found

    def _courier(self, traits: tuple[Any, ...]) -> Courier:
        database = LossyDatabase(self.url, statement_timeout=4.0, size=4)
        database.committed = self._worker_committed
        providers = [self.providers[each.name] for each in traits]
        shutdown = Shutdown()
        sender = Sender.parse(_WORKER.mail_from)
        routes = runtime.routes(_WORKER, sender.address, providers, shutdown)
        return Courier(
            database=database,
            settings=_WORKER,
            routes={LIVE: routes[LIVE], TEST: routes[TEST]},
            policy=replace(runtime.policy(_WORKER, routes), jitter=lambda: 0.0),
            render=partial(runtime.render, _WORKER.public_url, sender, Brandings(database)),
            kick=lambda: None,
            slots=Slots(len(SLOTS)),
            shutdown=shutdown,
        )

    def _worker_committed(self) -> None:
        self._committed()
        point("committed")

    def close(self) -> None:
        """Nothing runs any more."""
        for slot in range(len(self.slots)):
            self.kill(slot)
        for database in (self.database, *(courier.database for courier in self.couriers)):
            database.close()


def feed_of(database: Database, client_id: UUID) -> list[changes.FeedChange]:
    """All that a client's feed says."""
    found: list[changes.FeedChange] = []
    while (page := changes.read(database, client_id, after=found[-1].seq if found else 0, limit=50)).items:
        found += page.items
    return found
