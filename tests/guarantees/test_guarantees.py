"""G1-G8 and G11 hold in whatever order things happen.

Hypothesis looks for an order that breaks one, against the product's own code and SQL on a real PostgreSQL, and tells the
shortest story it finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from db import delivery_state as ds
from tasks import settling
from tests.factories import Factory
from tests.guarantees.clock import Clock
from tests.guarantees.provider import TAKES
from tests.guarantees.steps import STEPS, Step
from tests.guarantees.world import SLOTS, World, feed_of

ROUNDS = 20  # of half an hour: longer than a gate, an evidence window after it, and two sweeps


class Run(RuleBasedStateMachine):
    """One order of events. One rule for all: Hypothesis would leave out whole kinds (swarm testing)."""

    def __init__(self, make: Factory, url: str, clock: Clock) -> None:
        super().__init__()
        self.world = World(make, url, clock)
        self.is_well = True

    @rule(step=STEPS)
    def next(self, step: Step) -> None:
        self.is_well = False
        step.happen(self.world)
        self.world.check()
        self.is_well = True

    def teardown(self) -> None:
        try:
            if self.is_well:
                self.is_well = False
                everything_ends(self.world)
                the_feed_tells_everything_once(self.world)
                no_token_is_in_the_database(self.world)
                self.is_well = True
        finally:
            self.world.close()
            if not self.is_well:
                hypothesis.note("\n".join(["", *self.world.story]))


def everything_ends(world: World) -> None:
    """G3: with time, sweeps and workers that all die after their claim, nothing waits for ever."""
    for _ in range(ROUNDS):
        if {row["status"] for row in world.state.deliveries.values()} <= ds.TERMINAL:
            return
        for slot in range(len(SLOTS)):
            world.work(slot, TAKES, "connected", "answered")
            world.kill(slot)
        world.let_pass(1801.0)
        world.sweep(0)
        world.check()
    raise AssertionError("G3: a delivery never ends")


def the_feed_tells_everything_once(world: World) -> None:
    """Each one's changes make a chain from its creation to what it is now, in the order of the feed."""
    for client_id in {row["client_id"] for row in world.state.verifications.values()}:
        # That a verification was requested, its delivery's first change says; claims are no changes.
        at: dict[object, str | None] = dict.fromkeys(world.state.verifications, "requested")
        for change in feed_of(world.database, client_id):
            about = change.delivery_id or change.verification_id
            assert change.before in {at.get(about), "sending"}, f"a gap in the feed: {change}"
            at[about] = change.after
        for row in [*world.state.deliveries.values(), *world.state.verifications.values()]:
            if row["client_id"] == client_id:
                assert row["status"] in {at.get(row["id"]), "sending"}, (
                    f"the feed does not tell the end of {row}"
                )


def no_token_is_in_the_database(world: World) -> None:
    """G9: not in any column of any table."""
    tables = world.make.all("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    dump = "".join(str(world.make.all(f"SELECT t::text FROM {row['tablename']} t")) for row in tables)
    for taken in world.mails:
        token = taken.mail.text.partition("verify#")[2][:19]
        assert token and token not in dump and token.replace("-", "") not in dump, "G9: a token is stored"


@pytest.fixture
def clock(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock that can be moved, of a database that no one else uses."""
    monkeypatch.setattr(settling, "_PAUSE_SECONDS", 0.001)  # between tries while the database does not answer
    made = Clock(database_url, monkeypatch)
    yield made
    made.close()


def test_no_order_of_events_breaks_a_guarantee(clock: Clock, make: Factory, database_url: str) -> None:
    run_state_machine_as_test(
        lambda: Run(make, database_url, clock),  # type: ignore[arg-type]
        settings=settings(
            max_examples=int(os.environ.get("EXAMPLES", "40")),
            stateful_step_count=50,
            derandomize="CI" in os.environ,  # elsewhere each run looks at other orders
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
