"""The access log: the rule that matched and well-formed ids, never what the caller wrote (G9)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from db import ids, tokens
from db.session import Database
from tests.support.api import Api, make_api
from tests.support.log_lines import logging_as


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database)


def access(written: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in written.splitlines()]
    return [line for line in lines if line["logger"] == "access"]


def test_a_line_names_the_rule_and_the_id(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    made = api.create().get_json()["verification_id"]
    with logging_as("json"):
        api.get(f"/v1/verifications/{made}")
        api.get(f"/v1/verifications/{made}/receipt")
        (read, receipt) = access(capsys.readouterr().err)
    assert (read["path"], read["verification_id"]) == ("/v1/verifications/<verification_id>", made)
    assert receipt["path"] == "/v1/verifications/<verification_id>/receipt"
    assert receipt["verification_id"] == made


SHAPES = {
    "as shown": tokens.grouped,
    "lower case": lambda token: tokens.grouped(token).lower(),
    "compact": lambda token: token.lower(),
    "spaces": lambda token: tokens.grouped(token).replace("-", " "),
    "odd groups": lambda token: f"{token[:3]}.{token[3:8]}_{token[8:]}",
    "behind letters": lambda token: f"xyz{token}",
    "an address": lambda token: f"o'ada={token}@example.com",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_of_the_callers_is_in_it(api: Api, capsys: pytest.CaptureFixture[str], shape: str) -> None:
    written = SHAPES[shape](api.token(api.create().get_json()["verification_id"]))
    with logging_as("json"):
        for path in ("/verify/{}", "/v1/verifications/{}", "/{}", "/v1/verifications/{}/receipt?t={}"):
            for text in (quote(written), quote(quote(written, safe=""))):
                api.get(path.replace("{}", text))
        api.http.open("/verify", method=quote(written).replace("%", "-"))
        logged = capsys.readouterr().err
    lines = access(logged)
    assert len(lines) == 9
    assert {line["path"] for line in lines} == {
        "unmatched",
        "/v1/verifications/<verification_id>",
        "/v1/verifications/<verification_id>/receipt",
    }
    assert lines[-1]["method"] == "other"
    assert not any("verification_id" in line for line in lines)
    assert written not in logged
    assert written[3:8] not in logged


def test_a_token_sent_as_request_id_is_neither_logged_nor_stored(
    api: Api, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    token = api.token(api.create().get_json()["verification_id"]).lower()
    with logging_as("json"):
        answer = api.http.post(
            "/v1/verifications",
            json={"account_id": "account-2", "email": "bob@example.com"},
            headers=api.headers | {"X-Request-ID": token},
        )
        logged = capsys.readouterr().err
    made = answer.get_json()
    assert ids.parse("req", made["correlation_id"])
    assert answer.headers["X-Request-ID"] == made["correlation_id"]
    assert token not in logged
