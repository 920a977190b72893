"""The ledger can fail: a worker without one rule breaks a guarantee at the right moment, and a whole one does not."""

from __future__ import annotations

import pytest

from dev.redis import Redis
from tests.chaos.directed import SCENARIOS, Stage
from tests.factories import Factory

# Without the local fence alone a busy machine is still saved, now and then, by what stands behind it; the model shows
# its want.
SHOWN = [rule for rule in SCENARIOS if rule != "local_fence"]


@pytest.mark.parametrize("rule", SHOWN)
def test_without_this_rule_the_ledger_fails(
    rule: str, make: Factory, database_url: str, redis_server: Redis
) -> None:
    play, guarantee = SCENARIOS[rule]
    with Stage(make, database_url, redis_server.url(), sabotage=rule) as stage:
        play(stage)
        stage.wait(lambda: stage.breaks(guarantee), f"{guarantee} to be broken")


@pytest.mark.parametrize("rule", SCENARIOS)
def test_an_honest_worker_comes_through_the_same(
    rule: str, make: Factory, database_url: str, redis_server: Redis
) -> None:
    play, _ = SCENARIOS[rule]
    with Stage(make, database_url, redis_server.url(), sabotage="honest") as stage:
        play(stage)
        stage.come_to_rest()
        assert list(map(str, stage.breaches())) == []
