"""A client's branding, from the call that sets it to the mail that shows it; a damaged one hurts nobody else."""

from __future__ import annotations

import json
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask.testing import FlaskCliRunner

import app as application
from db import brandings, ids
from db.errors import RateLimited
from db.session import Database
from tasks import runtime
from tasks.brandings import Brandings
from tasks.message import Sender
from tests.factories import Factory
from tests.support.api import Api, make_api, use_up_judging
from tests.support.courier import SETTINGS, make_courier
from tests.support.log_lines import logging_as
from tests.support.smtp_server import SmtpServer, accept_silently, hang
from tests.unit.test_branding import EXAMPLE

HOST = "https://shop.example/account"
NONE = {"branding_id": None, "set_at": None, "branding": None}


@pytest.fixture
def api(database: Database) -> Api:
    """A client whose mail may link to shop.example."""
    return make_api(database, "shop", return_urls=(HOST,))


def put(api: Api, document: Any) -> Any:
    return api.http.put("/v1/branding", json=document, headers=api.headers)


def delete(api: Api) -> Any:
    return api.http.delete("/v1/branding", headers=api.headers)


def preview(api: Api, **body: Any) -> Any:
    return api.http.post("/v1/branding/preview", json=body, headers=api.headers)


def rows(database: Database) -> int:
    with database.transaction() as tx:
        row = tx.execute("SELECT count(*) AS n FROM brandings").fetchone()
    assert row is not None
    return int(row["n"])


def url(server: SmtpServer) -> str:
    return f"smtp://127.0.0.1:{server.port}"


def requested(api: Api, account: str, **more: Any) -> UUID:
    """The delivery of a new verification."""
    answer = api.create(f"key-{account}", account_id=account, email=f"{account}@example.com", **more)
    assert answer.status_code == 202, answer.json
    found = ids.parse("dlv", answer.json["delivery_id"])
    assert found is not None
    return found


def mails(server: SmtpServer) -> dict[str, EmailMessage]:
    """What arrived, by the local part of its recipient."""
    parsed = [message_from_bytes(message.data, policy=policy.default) for message in server.messages]
    return {str(mail["To"]).partition("@")[0]: mail for mail in parsed}


def damage(make: Factory, body: str) -> None:
    make.execute("UPDATE brandings SET body = %s::jsonb", body)


# The calls


def test_a_branding_is_set_shown_kept_and_reset(api: Api, database: Database) -> None:
    assert api.get("/v1/branding").json == NONE
    first = put(api, EXAMPLE)
    assert (first.status_code, first.json["branding"]) == (200, EXAMPLE)
    assert api.get("/v1/branding").json == first.json
    assert put(api, EXAMPLE).json == first.json
    assert put(api, first.json["branding"]).json == first.json
    assert rows(database) == 1, "the same again makes no row"
    second = put(api, {"name": "Another"})
    assert second.json["branding_id"] != first.json["branding_id"]
    assert second.json["branding"] == {"name": "Another"}
    assert delete(api).json == delete(api).json == api.get("/v1/branding").json == NONE
    assert rows(database) == 2, "what mail was rendered with is kept"


def test_a_client_sees_and_changes_its_own_branding_only(api: Api, database: Database) -> None:
    put(api, EXAMPLE)
    other = make_api(database, "other")
    assert other.get("/v1/branding").json == NONE
    delete(other)
    assert api.get("/v1/branding").json["branding"] == EXAMPLE
    refused = put(other, EXAMPLE)
    assert refused.status_code == 422, "its mail may not link to another's host"
    assert {error["code"] for error in refused.json["errors"]} == {"link_elsewhere"}


def test_without_a_key_nothing_is_told(api: Api) -> None:
    for method, path in (
        ("GET", "/v1/branding"),
        ("PUT", "/v1/branding"),
        ("DELETE", "/v1/branding"),
        ("POST", "/v1/branding/preview"),
    ):
        answer = api.http.open(path, method=method, json={"name": "Shop"})
        assert (answer.status_code, answer.json["code"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        ({}, "/name", "required"),
        ({"name": None}, "/name", "invalid_type"),
        ({"name": "Shop", "logo": "x"}, "/logo", "unknown_field"),
        ({"name": "Shop", "colours": None}, "/colours", "invalid_type"),
        ({"name": "Shop", "colours": {"button": 1}}, "/colours/button", "invalid_type"),
        ({"name": "Shop", "wording": {"en": {"a/b~c": "x"}}}, "/wording/en/a~1b~0c", "unknown_field"),
        ({"name": "Shop", "wording": {"en": {"lead": "{token}"}}}, "/wording/en/lead", "unknown_placeholder"),
        ({"name": "Shop", "templates": {"en": {"html": "<p>"}}}, "/templates/en/html", "missing_placeholder"),
        ({"name": "a\r\nBcc: x"}, "/name", "invalid_format"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_kept(
    api: Api, database: Database, document: Any, pointer: str, code: str
) -> None:
    answer = put(api, document)
    assert (answer.status_code, answer.json["code"]) == (422, "invalid_request")
    assert (pointer, code) in [(error["pointer"], error["code"]) for error in answer.json["errors"]]
    assert rows(database) == 0


def test_a_document_that_is_no_object_or_too_large_is_refused(api: Api) -> None:
    assert put(api, []).status_code == 422
    assert put(api, {"name": "Shop", "templates": {"en": {"text": "x" * 17_000}}}).status_code == 413


def test_new_brandings_are_limited_by_the_hour_and_the_same_is_not_new(api: Api, database: Database) -> None:
    for number in range(30):
        assert put(api, {"name": f"Shop {number}"}).status_code == 200
    refused = put(api, {"name": "One too many"})
    assert (refused.status_code, refused.json["code"]) == (429, "rate_limited")
    assert int(refused.headers["Retry-After"]) > 0
    assert put(api, {"name": "Shop 29"}).status_code == 200
    assert api.get("/v1/branding").json["branding"] == {"name": "Shop 29"}
    with pytest.raises(RateLimited):
        brandings.set_current(database, api.owner.client.id, {"shape": 1, "name": "x"})


def test_a_preview_shows_the_mail_and_keeps_nothing(api: Api, database: Database) -> None:
    shown = preview(api, branding=EXAMPLE, purpose="newsletter", locale="en-GB")
    assert shown.status_code == 200
    assert shown.json["subject"] == "Confirm your address for Example Shop"
    assert "the newsletter of Example Shop" in shown.json["text"]
    assert "https://countersign.example/verify#0000-0000-0000-0000" in shown.json["html"]
    assert rows(database) == 0
    assert preview(api).status_code == 404, "none is set"
    put(api, EXAMPLE)
    assert "Welcome to Example Shop!" in preview(api).json["text"]
    refused = preview(api, branding={"name": ""})
    assert [error["pointer"] for error in refused.json["errors"]] == ["/branding/name"]


def test_judging_is_limited_by_the_hour_refused_documents_included(api: Api) -> None:
    use_up_judging(api, but=1)
    assert preview(api, branding={"name": ""}).status_code == 422
    refused = preview(api, branding={"name": "Shop"})
    assert (refused.status_code, refused.json["limit"]) == (429, "branding_judged_by_client")
    assert put(api, {"name": "Shop"}).status_code == 429
    assert delete(api).status_code == 200


# The mail


def test_mail_carries_what_was_set_when_it_was_requested(api: Api, make: Factory) -> None:
    requested(api, "before")
    put(api, EXAMPLE)
    requested(api, "during")
    put(api, {"name": "Renamed"})
    requested(api, "renamed", locale="de")
    delete(api)
    requested(api, "after")
    with SmtpServer() as server:
        make_courier(make.database, url(server)).drain()
    arrived = mails(server)
    assert {who: str(mail["From"]) for who, mail in arrived.items()} == {
        "before": "Countersign <verify@countersign.example>",
        "during": "Example Shop via Countersign <verify@countersign.example>",
        "renamed": "Renamed via Countersign <verify@countersign.example>",
        "after": "Countersign <verify@countersign.example>",
    }
    assert "Welcome to Example Shop!" in arrived["during"].get_body(("plain",)).get_content()
    assert "für Renamed" in arrived["renamed"].get_body(("plain",)).get_content()


def test_a_replay_after_the_branding_changed_is_the_same_mail(api: Api, make: Factory) -> None:
    put(api, EXAMPLE)
    delivery_id = requested(api, "anna")
    with SmtpServer(end=[accept_silently(hang)]) as server:
        make_courier(make.database, url(server)).drain()
        assert make.row(delivery_id)["status"] == "unknown"
        put(api, {"name": "Renamed"})
        make.pass_time(delivery_id, seconds=1801)
        make_courier(make.database, url(server)).drain()
    first, second = server.messages
    assert first.data == second.data
    assert make.row(delivery_id)["status"] == "accepted"


def test_a_branding_is_read_once_a_worker(api: Api, make: Factory) -> None:
    put(api, EXAMPLE)
    requested(api, "first")
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
        damage(make, "[]")  # which a second look would find
        requested(api, "second")
        courier.drain()
    assert "Welcome to Example Shop!" in mails(server)["second"].get_body(("plain",)).get_content()


DAMAGED = {
    "no object": "[]",
    "no name": '{"shape": 1}',
    "unknown placeholder": '{"shape": 1, "name": "Shop", "templates": {"en": {"text": "{nonsense}"}}}',
    "a second header": '{"shape": 1, "name": "Shop\\r\\nBcc: mallory@example.com"}',
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_branding_fails_its_own_mail_and_no_other(api: Api, make: Factory, body: str) -> None:
    other = make_api(make.database, "other")
    put(api, EXAMPLE)
    first, broken, last = requested(other, "first"), requested(api, "broken"), requested(other, "last")
    damage(make, body)
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server))
        courier.drain()
        assert set(mails(server)) == {"first", "last"}
        row = make.row(broken)
        assert (row["status"], row["last_error"], row["attempt_count"]) == ("pending", "template_error", 1)
        assert make.all("SELECT 1 FROM provider_status") == [], "the provider has no part in it"
        for _ in range(SETTINGS.max_attempts - 1):
            make.execute("UPDATE email_outbox SET next_attempt_at = now() WHERE id = %s", broken)
            courier.drain()
    row = make.row(broken)
    assert (row["status"], row["failure_category"], row["failure_code"]) == (
        "failed",
        "content",
        "template_error",
    )
    assert {make.row(delivery)["status"] for delivery in (first, last)} == {"accepted"}
    shown = api.get("/v1/verifications?account_id=broken").json["items"][0]
    assert "PUT /v1/branding" in shown["failure"]["action"]


def test_a_damaged_branding_alerts(api: Api, make: Factory, capsys: pytest.CaptureFixture[str]) -> None:
    put(api, EXAMPLE)
    requested(api, "broken")
    damage(make, "[]")
    with SmtpServer() as server, logging_as("json"):
        make_courier(make.database, url(server)).drain()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["alert"] for line in lines if line["event"] == "template_error"] == [True]


def test_a_branding_of_a_later_release_waits_for_a_worker_that_can_read_it(api: Api, make: Factory) -> None:
    other = make_api(make.database, "other")
    put(api, EXAMPLE)
    waiting, sent = requested(api, "waiting"), requested(other, "sent")
    damage(make, json.dumps({"shape": 2, "name": {"en": "Shop"}}))
    with SmtpServer() as server:
        make_courier(make.database, url(server)).drain()
    row = make.row(waiting)
    assert (row["status"], row["last_error"], row["attempt_count"]) == ("pending", "cannot_render", 0)
    assert make.row(sent)["status"] == "accepted"


def test_a_branding_that_cannot_be_read_now_costs_its_mail_nothing(api: Api, make: Factory) -> None:
    put(api, EXAMPLE)
    delivery_id = requested(api, "anna")
    away = Database("postgresql://127.0.0.1:1/none", statement_timeout=1.0, size=1)
    with SmtpServer() as server:
        courier = make_courier(make.database, url(server))
        there = courier.render
        courier.render = partial(
            runtime.render, SETTINGS.public_url, Sender.parse(SETTINGS.mail_from), Brandings(away)
        )
        courier.drain(seconds=0.0)
        row = make.row(delivery_id)
        assert (row["status"], row["last_error"], row["attempt_count"]) == ("pending", "branding_unread", 0)
        assert server.messages == []
        courier.render = there
        courier.drain()
    assert set(mails(server)) == {"anna"}


# The command


@pytest.fixture
def run(database_url: str) -> Any:
    runner: FlaskCliRunner = application.application.test_cli_runner()
    return lambda *given: runner.invoke(
        args=("clients", "branding", *given), env={"DATABASE_URL": database_url}, catch_exceptions=False
    )


def test_an_operator_sets_shows_and_resets(run: Any, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "branding.json"
    file.write_text(json.dumps(EXAMPLE), encoding="utf-8")
    assert json.loads(run("shop", "--json").stdout) == NONE
    made = run("shop", "--set", str(file), "--json")
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout) == api.get("/v1/branding").json
    assert json.loads(run("shop").stdout) == EXAMPLE
    assert "own words" in run("shop", "--reset").stdout
    assert api.get("/v1/branding").json == NONE


def test_an_operator_may_link_where_a_client_may_not(run: Any, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "branding.json"
    document = {"name": "Shop", "wording": {"en": {"lead": "See elsewhere.example, please."}}}
    file.write_text(json.dumps(document), encoding="utf-8")
    assert put(api, document).status_code == 422
    assert run("shop", "--set", str(file)).exit_code == 0


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ('{"name": ""}', (1, "/name: ")),
        ("{", (2, "not JSON")),
        ('{"name": "a", "name": "b"}', (2, "duplicate keys")),
        (" " * 17_000, (1, "larger than 16384")),
    ],
)
def test_what_is_no_branding_is_refused_in_words(
    run: Any, api: Api, tmp_path: Path, text: str, refusal: tuple[int, str]
) -> None:
    file = tmp_path / "branding.json"
    file.write_text(text, encoding="utf-8")
    refused = run("shop", "--set", str(file))
    assert (refused.exit_code, refused.stdout) == (refusal[0], "")
    assert refusal[1] in refused.stderr
    assert api.get("/v1/branding").json == NONE


def test_a_client_that_is_not_there_and_both_options_at_once_are_refused(
    run: Any, api: Api, tmp_path: Path
) -> None:
    assert run("nobody").exit_code == 1
    file = tmp_path / "branding.json"
    file.write_text("{}", encoding="utf-8")
    assert run("shop", "--set", str(file), "--reset").exit_code == 2
