"""`explain` leads from whatever somebody has in hand to the receipt, by an index each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

import app
from db import explain, ids
from db.delivery_rules import AttemptResult
from db.delivery_state import Outcome
from db.leases import settle
from tests.factories import Factory, policy
from tests.support.courier import create

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str) -> Run:
    def call(*arguments: str) -> Result:
        environment = {"DATABASE_URL": database_url}
        return app.application.test_cli_runner().invoke(
            args=("explain", *arguments), env=environment, catch_exceptions=False
        )

    return call


def accepted(make: Factory, key: str = "the-key") -> Any:
    made = create(make.database, make.key(), idempotency_key=key, correlation_id=f"req_{key}")
    lease = make.claim(made.delivery_id)
    assert make.hand_over(lease)
    result = AttemptResult(Outcome.ACCEPTED, response_status="250", provider_message_id=f"queued-{key}")
    settle(make.database, lease, result, policy())
    return made


@pytest.mark.parametrize(
    "text",
    [
        "{ver}",
        "{dlv}",
        "<{dlv}@mail.example.com>",
        "{dlv}@mail.example.com",
        " req_the-key ",
        "queued-the-key",
        "the-key",
    ],
)
def test_whatever_names_a_mail_leads_to_its_receipt(make: Factory, run: Run, text: str) -> None:
    made = accepted(make)
    accepted(make, "another")
    names = {"ver": ids.public("ver", made.id), "dlv": ids.public("dlv", made.delivery_id)}
    done = run(text.format(**names))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Verification {names['ver']}")
    assert "Next:" in done.stdout


def test_what_may_mean_several_is_a_short_list_the_newest_first(make: Factory, run: Run) -> None:
    made = [create(make.database, make.key(), correlation_id="req_shared") for _ in range(2)]
    wanted = [ids.public("ver", each.id) for each in reversed(made)]
    receipts = json.loads(run("req_shared", "--json").stdout)
    assert [receipt["verification"]["verification_id"] for receipt in receipts] == wanted
    listed = run("req_shared")
    head, *rows = listed.stdout.splitlines()
    assert head.split() == ["VERIFICATION", "CREATED", "(UTC)", "ACCOUNT", "STATUS", "DELIVERY"]
    assert [row.split()[0] for row in rows] == wanted
    assert listed.stderr.startswith("2 verifications")


def test_a_list_that_may_go_on_says_so(make: Factory, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST", 2)
    for _ in range(3):
        create(make.database, make.key(), correlation_id="req_shared")
    listed = run("req_shared")
    assert listed.stderr.startswith("at least 2 verifications")
    assert len(listed.stdout.splitlines()) == 1 + 2


@pytest.mark.parametrize("text", ["nobody", "ver_" + "0" * 32, "cs_live_abcdefghij_" + "a" * 32])
def test_what_means_nothing_says_what_it_takes_and_repeats_no_secret(
    make: Factory, run: Run, text: str
) -> None:
    done = run(text)
    assert done.exit_code == 1 and "Error" in done.stderr
    assert "a" * 32 not in done.output
