"""One run: start the world, load it, hurt it as planned, let it come to rest, and open the ledger."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.chaos import faults, ledger, receipts_check, recovery, secrets_in_logs, story
from tests.chaos.book import Book
from tests.chaos.facts import Breach, Facts, Pause, unsettled
from tests.chaos.load import Load
from tests.chaos.recovery import Injected
from tests.chaos.schedule import CALM_AFTER, Fault, plan
from tests.chaos.world import TERMS, World

SETTLE_SECONDS = 45.0  # a delivery's deadline, an evidence window and a lease, as they overlap
_LOAD_STOPS_BEFORE = CALM_AFTER - 6.0  # load goes on for a while after the last fault
_STEP_SECONDS = 0.05
Say = Callable[[str], None]


@dataclass
class Outcome:
    """What a run came to."""

    seed: int
    minutes: float
    injected: list[Injected]
    facts: Facts
    breaches: list[Breach]
    recoveries: list[recovery.Recovery]
    settled_after: float  # seconds from the end of the planned time
    seconds: float
    stories: list[str] = field(default_factory=list)


def run(seed: int, minutes: float, folder: Path, say: Say, *, sabotage: str = "") -> Outcome:
    """Everything. `folder` keeps logs, data and the client's book."""
    began = time.monotonic()
    book = Book(folder / "book.jsonl")
    with World(folder, sabotage=sabotage) as world:
        say(f"started in {time.monotonic() - began:.1f} s")
        load = Load([world.url("web1"), world.url("web2")], world.api_key, world.mailbox, book, seed=seed)
        load.start()
        injected, pauses = inflict(world, plan(seed, minutes), load, minutes * 60, say)
        settled_after = settle(world, load, book)
        facts = Facts.read(world.database_url, world.mailbox.mails, book, TERMS, pauses)
        breaches = [*ledger.check(facts), *_others(world, load, facts)]
        stories = list(story.tell(facts, breaches, world.database_url))
    book.close()
    recoveries = recovery.measure(injected, book, facts.mails)
    seconds = time.monotonic() - began
    return Outcome(seed, minutes, injected, facts, breaches, recoveries, settled_after, seconds, stories)


def inflict(
    world: World, planned: tuple[Fault, ...], load: Load, seconds: float, say: Say
) -> tuple[list[Injected], list[Pause]]:
    """Do everything at its time, and keep the processes alive meanwhile. What ends after `seconds` never does."""
    start = time.monotonic()
    due = [(fault.at, number) for number, fault in enumerate(planned)]
    heapq.heapify(due)
    began: dict[int, float] = {}
    injected: list[Injected] = []
    while (now := time.monotonic() - start) < seconds or (due and due[0][0] <= seconds):
        world.supervisor.tend()
        if now >= seconds - _LOAD_STOPS_BEFORE:
            load.stop()
        if not due or due[0][0] > now:
            time.sleep(_STEP_SECONDS)
            continue
        _, number = heapq.heappop(due)
        fault = planned[number]
        if number not in began:
            say(str(fault))
            began[number] = time.time()
            faults.begin(world, fault)
            heapq.heappush(due, (fault.end, number))
        else:
            faults.end(world, fault)
            injected.append(Injected(fault, began[number], time.time()))
    injected += [Injected(planned[number], began[number], time.time()) for _, number in due]
    return injected, _pauses(world, injected)


def _pauses(world: World, injected: list[Injected]) -> list[Pause]:
    return [
        Pause(pid, each.began, each.ended)
        for each in injected
        if each.fault.kind in {"pause", "pause_mid_send"}
        for pid in world.supervisor.parts[each.fault.target].pids
    ]


def settle(world: World, load: Load, book: Book) -> float:
    """Wait until every host has its answer, every delivery its end, and the follower the whole feed. Seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < SETTLE_SECONDS:
        world.supervisor.tend()
        if load.is_over and not unsettled(world.database_url) and _has_all(world, book):
            break
        time.sleep(_STEP_SECONDS * 4)
    load.finish(10.0)
    return time.monotonic() - began


def _has_all(world: World, book: Book) -> bool:
    with psycopg.connect(world.database_url) as connection:
        row = connection.execute("SELECT count(*) FROM state_changes").fetchone()
    return row is not None and row[0] == len(book.feed)


def _others(world: World, load: Load, facts: Facts) -> list[Breach]:
    """What rows alone do not tell: receipts, logs, processes, the load's own trouble."""
    supervisor = world.supervisor
    found = [Breach("run", text) for text in (*supervisor.misbehaved, *load.errors)]
    logs = {name: supervisor.log(name).read_text(errors="replace") for name in supervisor.parts}
    found += secrets_in_logs.search(logs, facts.mails, facts.book, world.secrets())
    return [*found, *receipts_check.check(facts, world.database_url)]
