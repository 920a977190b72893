"""One verification, from the request to the activated account, through the real processes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from pytest_celery import CeleryTestSetup

from tests.e2e.conftest import System
from tests.factories import Factory
from tests.support.cluster import wait_for


def test_a_request_becomes_a_mail_a_receipt_and_an_active_account(system: System, make: Factory) -> None:
    created = system.request().json()
    token = system.token(created["delivery_id"])
    wait_for(lambda: shown(system, created)["phase"] == "delivered", "delivered")
    consumed = httpx.post(f"{system.url}/v1/tokens/consume", json={"token": token})
    assert consumed.status_code == 200
    assert consumed.json()["verification_id"] == created["verification_id"]
    assert make.one("SELECT email, activated_at IS NOT NULL AS active FROM accounts") == {
        "email": "person@example.com",
        "active": True,
    }
    receipt = system.api.get(f"/v1/verifications/{created['verification_id']}/receipt").json()
    assert receipt["delivery"]["evidence"] == "response"
    assert [a["outcome"] for a in receipt["attempts"]] == ["accepted"]
    text = system.api.get(
        f"/v1/verifications/{created['verification_id']}/receipt", headers={"Accept": "text/plain"}
    ).text
    assert "person@example.com" not in text
    assert token not in text


def test_twenty_identical_requests_at_once_are_one_verification_one_delivery_one_mail(
    system: System, make: Factory
) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: system.request("key-1"), range(20)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["verification_id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    (delivery_id,) = {answer.json()["delivery_id"] for answer in answers}
    system.mail(delivery_id)
    wait_for(lambda: shown(system, answers[0].json())["phase"] == "delivered", "delivered")
    assert make.one("SELECT count(*) AS n FROM email_outbox")["n"] == 1
    assert len(system.inbox.messages()) == 1


def test_a_token_used_twice_at_once_and_again_later_changes_one_row_once(
    system: System, make: Factory
) -> None:
    token = system.token(system.request().json()["delivery_id"])

    def use(_: int) -> httpx.Response:
        return httpx.post(f"{system.url}/v1/tokens/consume", json={"token": token})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(use, range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    everything = "SELECT v::text, a::text, o::text FROM verifications v, accounts a, email_outbox o"
    wait_for(lambda: make.one("SELECT status FROM email_outbox")["status"] == "accepted", "settled")
    before = make.all(everything)
    late = use(0)
    assert (late.status_code, late.json()["code"]) == (409, "verification_already_used")
    assert make.all(everything) == before


def test_with_redis_gone_a_request_is_still_answered_at_once_and_its_mail_arrives(
    system: System, celery_setup: CeleryTestSetup
) -> None:
    system.request("warm-up")
    assert celery_setup.broker is not None
    celery_setup.broker.kill()
    began = time.monotonic()
    answers = [system.request(f"key-{n}", account_id=f"acc_{n}") for n in range(5)]
    took = time.monotonic() - began
    assert {answer.status_code for answer in answers} == {202}
    assert took < 5.0
    for answer in answers:
        system.mail(answer.json()["delivery_id"])


def test_a_worker_that_is_killed_and_started_again_finds_its_work(
    system: System, celery_setup: CeleryTestSetup
) -> None:
    assert celery_setup.worker is not None
    celery_setup.worker.kill()
    created = system.request().json()
    celery_setup.worker.restart()
    system.mail(created["delivery_id"])


def test_only_the_newest_of_two_mails_can_be_used_and_the_older_says_so(system: System) -> None:
    first = system.request("one").json()
    old = system.token(first["delivery_id"])
    system.mail(system.request("two").json()["delivery_id"])
    refused = httpx.post(f"{system.url}/v1/tokens/consume", json={"token": old})
    assert (refused.status_code, refused.json()["code"]) == (410, "verification_expired")
    assert refused.json()["reason"] == "superseded"
    assert refused.json()["newer_exists"] is True


def test_nothing_secret_is_printed_by_any_process(system: System) -> None:
    created = system.request().json()
    token = system.token(created["delivery_id"])
    httpx.post(f"{system.url}/v1/tokens/consume", json={"token": token})
    httpx.get(f"{system.url}/verify?token={token}&email=person@example.com")
    httpx.get(f"{system.url}/v1/verifications", headers={"Authorization": f"Bearer {system.key}x"})
    wait_for(lambda: shown(system, created)["phase"] == "consumed", "consumed")
    printed = system.cluster.output()
    assert created["correlation_id"] in printed, "the lines of the request and of the worker can be found"
    for secret in (token, token.replace("-", ""), "person@example.com", system.key):
        assert secret not in printed


def shown(system: System, created: dict[str, str]) -> dict[str, str]:
    answer: dict[str, str] = system.api.get(f"/v1/verifications/{created['verification_id']}").json()
    return answer
