"""The HTTP contract of verifications: create, show, receipt."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from werkzeug.test import EnvironBuilder, TestResponse, run_wsgi_app

from db import clients, ids
from db.session import Database
from tests.support.api import BODY, Api, make_api, snapshot


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database, return_urls=("https://host.example/done",))


def problem(response: TestResponse, status: int, code: str) -> dict[str, Any]:
    """A problem of this status and code, well-formed."""
    assert response.status_code == status, response.text
    assert response.mimetype == "application/problem+json"
    body: dict[str, Any] = response.get_json(force=True)
    assert {"type", "title", "status", "code", "detail", "request_id"} <= set(body)
    assert (body["status"], body["code"]) == (status, code)
    assert body["request_id"] == response.headers["X-Request-ID"]
    return body


FIELDS = [
    *("verification_id", "account_id", "purpose", "email_masked", "phase", "verification_status"),
    *("delivery_id", "delivery_status", "retryable", "retry_at", "expires_at", "created_at", "consumed_at"),
    *("next_attempt_at", "correlation_id", "idempotency_key", "superseded_by", "mail_event", "mail_event_at"),
    *("failure", "metadata", "suggestion", "disposable"),
]


def test_create_answers_202_with_the_verification_and_wakes_a_worker(api: Api) -> None:
    answer = api.create(metadata={"plan": "a"})
    body = answer.get_json()
    assert answer.status_code == 202
    assert list(body) == FIELDS
    assert re.fullmatch(r"ver_[0-9a-f]{32}", body["verification_id"])
    assert re.fullmatch(r"dlv_[0-9a-f]{32}", body["delivery_id"])
    assert (body["account_id"], body["purpose"], body["email_masked"]) == (
        "account-1",
        "signup",
        "a***@example.com",
    )
    assert (body["phase"], body["verification_status"], body["delivery_status"]) == (
        "queued",
        "requested",
        "pending",
    )
    assert body["metadata"] == {"plan": "a"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", body["created_at"])
    assert answer.headers["Location"] == f"/v1/verifications/{body['verification_id']}"
    assert answer.headers["Idempotency-Key"] == body["idempotency_key"] == "key-1"
    assert answer.headers["Retry-After"] == "1"
    assert "Idempotent-Replayed" not in answer.headers
    assert body["correlation_id"] == answer.headers["X-Request-ID"]
    assert api.kicks == [1]


def test_a_replay_is_the_same_verification_as_it_stands(api: Api) -> None:
    first = api.create().get_json()
    again = api.create()
    assert again.status_code == 202
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.get_json() == first
    api.consume(api.token(first["verification_id"]))
    assert api.create().get_json()["phase"] == "consumed"
    assert api.create(purpose="signup").headers["Idempotent-Replayed"] == "true"


def test_a_replay_of_a_waiting_delivery_wakes_a_worker_again_and_of_a_dead_one_does_not(api: Api) -> None:
    made = api.create().get_json()
    api.create()
    assert len(api.kicks) == 2
    api.consume(api.token(made["verification_id"]))
    api.create()
    assert len(api.kicks) == 2


def test_the_same_key_with_another_body_is_a_conflict(api: Api) -> None:
    api.create()
    problem(api.create(email="eve@example.com"), 409, "idempotency_key_conflict")


def test_a_key_is_made_when_there_is_none_and_given_back(api: Api) -> None:
    answer = api.create(key=None)
    key = answer.headers["Idempotency-Key"]
    assert answer.get_json()["idempotency_key"] == key
    assert api.create(key=key).headers["Idempotent-Replayed"] == "true"


def test_quoted_and_bare_keys_are_the_same(api: Api) -> None:
    api.create("abc")
    assert api.create('"abc"').headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("key", ["", "a b", "a,b", "k" * 256])
def test_a_malformed_key_is_refused_before_anything_happens(api: Api, key: str) -> None:
    before = snapshot(api.database)
    problem(api.create(key), 400, "invalid_idempotency_key")
    assert snapshot(api.database) == before


def test_signup_for_an_active_account_with_the_same_address_is_refused(api: Api) -> None:
    api.consume(api.token(api.create().get_json()["verification_id"]))
    problem(api.create("key-2"), 409, "already_verified")


def test_a_new_request_supersedes_and_says_by_which(api: Api) -> None:
    old, new = api.create("key-1").get_json(), api.create("key-2").get_json()
    seen = api.get(f"/v1/verifications/{old['verification_id']}").get_json()
    assert seen["superseded_by"] == new["verification_id"]
    assert (seen["phase"], seen["retryable"]) == ("expired", False)


INVALID = [
    ({"account_id": None}, "/account_id", "invalid_type"),
    ({"account_id": 1}, "/account_id", "invalid_type"),
    ({"account_id": ""}, "/account_id", "invalid_length"),
    ({"account_id": "a" * 256}, "/account_id", "invalid_length"),
    ({"account_id": "a\nb"}, "/account_id", "invalid_format"),
    ({"account_id": "a\u202eb"}, "/account_id", "invalid_format"),
    ({"account_id": "a\u0000"}, "/account_id", "invalid_characters"),
    ({"email": "nope"}, "/email", "invalid_address"),
    ({"email": "ada@example.com\r\nBcc: eve@example.com"}, "/email", "invalid_format"),
    ({"email": ["ada@example.com"]}, "/email", "invalid_type"),
    ({"purpose": "Sign Up"}, "/purpose", "invalid_format"),
    ({"purpose": ""}, "/purpose", "invalid_length"),
    ({"expires_in": 300}, "/expires_in", "out_of_range"),
    ({"expires_in": -1}, "/expires_in", "out_of_range"),
    ({"expires_in": 10**12}, "/expires_in", "out_of_range"),
    ({"expires_in": "3600"}, "/expires_in", "invalid_type"),
    ({"expires_in": True}, "/expires_in", "invalid_type"),
    ({"locale": "not a locale"}, "/locale", "invalid_format"),
    ({"return_url": "javascript:alert(1)"}, "/return_url", "invalid_format"),
    ({"return_url": "https://evil.example/"}, "/return_url", "not_allowed"),
    ({"metadata": []}, "/metadata", "invalid_type"),
    ({"metadata": {"a": "x" * 5000}}, "/metadata", "too_large"),
    ({"metadata": {"a": 2**64}}, "/metadata/a", "number_too_large"),
    ({"metadata": {"a": 1e308}}, "/metadata/a", "number_too_large"),
    ({"metadata": {"a": [1e18] * 300}}, "/metadata", "too_large"),
    ({"ada@example.com": 1}, "/***@example.com", "unknown_field"),
    ({"x" * 200: 1}, f"/{'x' * 64}", "unknown_field"),
    ({"unheard_of": 1}, "/unheard_of", "unknown_field"),
]


@pytest.mark.parametrize(("change", "pointer", "code"), INVALID)
def test_a_field_that_is_wrong_is_named_and_nothing_happens(
    api: Api, change: dict[str, Any], pointer: str, code: str
) -> None:
    before = snapshot(api.database)
    body = problem(api.create(**change), 422, "invalid_request")
    assert [(error["pointer"], error["code"]) for error in body["errors"]] == [(pointer, code)]
    assert body["errors"][0]["detail"].endswith(".")
    assert snapshot(api.database) == before
    assert api.kicks == []


@pytest.mark.parametrize(
    ("change", "words"), [({"purpose": "Sign Up"}, "lower-case"), ({"locale": "english"}, "pt-BR")]
)
def test_a_form_that_is_wrong_is_told_the_right_one(api: Api, change: dict[str, Any], words: str) -> None:
    (error,) = problem(api.create(**change), 422, "invalid_request")["errors"]
    assert words in error["detail"]


def test_an_address_and_a_life_that_are_wrong_are_told_together(api: Api) -> None:
    body = problem(api.create(email="nope", expires_in=1), 422, "invalid_request")
    assert {error["pointer"] for error in body["errors"]} == {"/email", "/expires_in"}


@pytest.mark.parametrize(
    "change", [{"expires_in": 300.5}, {"locale": "de-AT"}, {"return_url": "https://host.example/done"}]
)
def test_optional_fields_are_taken(api: Api, change: dict[str, Any]) -> None:
    assert api.create(**change).status_code == 202


def test_metadata_comes_back_as_it_was_and_may_be_sent_again(api: Api) -> None:
    given = {"a": [1, 1.0, 0.1, 1e15, 1e16, -9.2e18, 1e-300, 2**63 - 1, True, None, ""], "ü": {"": [[]]}}
    shown = api.create(metadata=given).get_json()["metadata"]
    assert shown == given
    assert api.create("key-2", metadata=shown).get_json()["metadata"] == given


def test_all_wrong_fields_are_named_at_once(api: Api) -> None:
    answer = api.http.post("/v1/verifications", json={"x": 1}, headers=api.headers)
    pointers = [error["pointer"] for error in problem(answer, 422, "invalid_request")["errors"]]
    assert pointers == ["/account_id", "/email", "/x"]


@pytest.mark.parametrize("body", ["[]", '"text"', "1", "null", "true"])
def test_a_body_that_is_no_object_is_refused(api: Api, body: str) -> None:
    answer = api.http.post(
        "/v1/verifications", data=body, content_type="application/json", headers=api.headers
    )
    assert problem(answer, 422, "invalid_request")["errors"][0]["pointer"] == ""


def test_reserved_domains_are_refused_where_they_are_not_allowed(database: Database) -> None:
    strict = make_api(database, "strict", allow_reserved_domains=False)
    body = problem(strict.create(), 422, "invalid_request")
    assert body["errors"][0]["code"] == "reserved_domain"


FORM = "application/x-www-form-urlencoded"
HOSTILE = [
    (b"{", "application/json", 400, "malformed_json"),
    (b"", "application/json", 400, "malformed_json"),
    (b'{"email":NaN}', "application/json", 400, "malformed_json"),
    (b'{"email":1e999}', "application/json", 400, "malformed_json"),
    (b'{"email":"a","email":"b"}', "application/json", 400, "malformed_json"),
    (b"\xff\xfe", "application/json", 400, "malformed_json"),
    (b"[" * 10_000, "application/json", 400, "malformed_json"),
    (rb'{"email":"\ud800@example.com"}', "application/json", 422, "invalid_request"),
    (b"{}", "text/plain", 415, "unsupported_media_type"),
    (b"{}", "application/json; charset=utf-16", 415, "unsupported_media_type"),
    (b"{}", "", 415, "unsupported_media_type"),
    (b" " * 16_385, "application/json", 413, "body_too_large"),
]


@pytest.mark.parametrize(("body", "content_type", "status", "code"), HOSTILE)
def test_a_hostile_body_is_a_problem_never_a_500(
    api: Api, body: bytes, content_type: str, status: int, code: str
) -> None:
    for path in ("/v1/verifications", "/v1/tokens/consume"):
        answer = api.http.post(path, data=body, content_type=content_type, headers=api.headers)
        problem(answer, status, code)


@pytest.mark.parametrize(
    ("path", "content_type"), [("/v1/verifications", "application/json"), ("/verify", FORM)]
)
@pytest.mark.parametrize(("length", "too_large"), [(16_384, False), (16_385, True), (1_000_000, True)])
def test_a_body_of_unknown_length_is_measured_too(
    api: Api, path: str, content_type: str, length: int, too_large: bool
) -> None:
    environ = EnvironBuilder(
        path=path, method="POST", content_type=content_type, headers=api.headers
    ).get_environ()
    # As a server hands over a chunked body: no length, an input that knows its end.
    environ.pop("CONTENT_LENGTH", None)
    environ |= {"wsgi.input_terminated": True, "wsgi.input": io.BytesIO(b" " * length)}
    _, status, _ = run_wsgi_app(api.http.application, environ)
    assert status.startswith("413") is too_large


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic eDp5",
        "Bearer cs_live_aaaaaaaaaa_" + "a" * 31,
        "Bearer \u00fc",
        "Bearer " + "x" * 5000,
    ],
)
def test_no_key_or_a_wrong_one_is_401_before_the_body_is_read(api: Api, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = api.http.post("/v1/verifications", data=b"{", headers=headers)
    problem(answer, 401, "unauthorized")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_well_formed_key_that_is_nobodys_is_401(api: Api) -> None:
    headers = {"Authorization": "Bearer cs_live_aaaaaaaaaa_" + "a" * 32}
    problem(api.http.post("/v1/verifications", json=BODY, headers=headers), 401, "unauthorized")
    problem(api.http.get("/v1/verifications/x", headers=headers), 401, "unauthorized")


def test_a_key_with_a_wrong_secret_a_revoked_key_and_a_disabled_client_stop_at_once(api: Api) -> None:
    good = api.owner.key
    wrong = good[:-1] + ("a" if good[-1] != "a" else "b")
    problem(
        api.http.get("/v1/verifications/x", headers={"Authorization": f"Bearer {wrong}"}), 401, "unauthorized"
    )
    second = clients.create_key(api.database, "host")
    clients.revoke_key(api.database, good)
    problem(api.create(), 401, "unauthorized")
    headers = {"Authorization": f"Bearer {second.key}"}
    assert api.http.post("/v1/verifications", json=BODY, headers=headers).status_code == 202
    clients.disable(api.database, "host")
    problem(api.http.post("/v1/verifications", json=BODY, headers=headers), 403, "client_disabled")


def test_show_answers_as_create_did_and_stops_polling_at_the_end(api: Api) -> None:
    made = api.create().get_json()
    path = f"/v1/verifications/{made['verification_id']}"
    shown = api.get(path)
    assert (shown.status_code, shown.get_json(), shown.headers["Retry-After"]) == (200, made, "1")
    api.consume(api.token(made["verification_id"]))
    ended = api.get(path)
    assert "Retry-After" not in ended.headers
    assert ended.get_json()["consumed_at"] is not None


def test_what_is_not_there_or_another_clients_is_not_found(api: Api) -> None:
    made = api.create().get_json()["verification_id"]
    stranger = make_api(api.database, "stranger")
    for path in (f"/v1/verifications/{made}", f"/v1/verifications/{made}/receipt"):
        problem(stranger.get(path), 404, "not_found")
    for wrong in (
        ids.public("ver", ids.new_id()),
        made.upper(),
        made[:-1],
        made.replace("ver_", "dlv_"),
        "x",
        "%00",
        "ü",
    ):
        problem(api.get(f"/v1/verifications/{wrong}"), 404, "not_found")


def test_a_receipt_comes_as_json_and_as_text(api: Api) -> None:
    made = api.create().get_json()
    path = f"/v1/verifications/{made['verification_id']}/receipt"
    body = api.get(path).get_json()
    assert list(body) == ["verification", "delivery", "attempts", "events", "timeline", "next_action"]
    assert body["verification"] == made
    assert [entry["event"] for entry in body["timeline"]] == ["verification.requested", "delivery.pending"]
    assert body["next_action"]["code"] == "wait_for_worker"
    for accept in ("text/plain", "text/plain;q=0.9, text/html"):
        text = api.get(path, Accept=accept)
        assert text.mimetype == "text/plain"
        assert made["verification_id"] in text.text
        assert "wait_for_worker" in text.text
    assert api.get(path, Accept="*/*").mimetype == "application/json"
    assert api.get(path, Accept="text/html,*/*;q=0.8").mimetype == "application/json"
    assert api.get(path, Accept="application/json; charset=UTF-8").mimetype == "application/json"
    assert api.get(path, Accept="Text/Plain;charset=utf-8, */*;q=0.1").mimetype == "text/plain"
    assert api.get(path, Accept="application/json;q=0, */*").mimetype == "text/plain"
    problem(api.get(path, Accept="image/png"), 406, "not_acceptable")
    problem(api.get(path, Accept="text/plain;q=0"), 406, "not_acceptable")
    for accept in ("application/json", "text/plain", "image/png"):
        assert api.get(path, Accept=accept).headers["Vary"] == "Accept"


def test_no_answer_is_cached_or_guessed_at(api: Api) -> None:
    made = api.create().get_json()
    path = f"/v1/verifications/{made['verification_id']}"
    answers = [
        *(api.create(), api.create("k" * 256), api.create("key-1", email="eve@example.com")),
        *(api.get(path), api.get(f"{path}/receipt"), api.get(f"{path}/receipt", Accept="text/plain")),
        *(api.consume("x"), api.consume(api.token(made["verification_id"])), api.http.get(path)),
        *(api.get("/nowhere"), api.http.delete("/v1/verifications"), api.http.get("/openapi.json")),
        *(
            api.http.get("/healthz"),
            api.http.get("/readyz"),
            api.http.get("/verify"),
            api.http.post("/verify"),
        ),
    ]
    assert {answer.status_code for answer in answers} == {200, 202, 400, 401, 404, 405, 409, 422}
    for answer in answers:
        assert answer.headers.getlist("Cache-Control") == ["no-store"]
        assert answer.headers.getlist("X-Content-Type-Options") == ["nosniff"]


def test_a_request_id_is_taken_and_is_the_correlation_id(api: Api) -> None:
    headers = {**api.headers, "X-Request-ID": "trace-42"}
    answer = api.http.post("/v1/verifications", json=BODY, headers=headers)
    assert answer.headers["X-Request-ID"] == answer.get_json()["correlation_id"] == "trace-42"


def test_a_hostile_request_id_is_replaced(api: Api) -> None:
    answer = api.http.get("/healthz", headers={"X-Request-ID": "ada@example.com"})
    assert answer.headers["X-Request-ID"].startswith("req_")


def test_unknown_paths_and_methods_are_problems(api: Api) -> None:
    problem(api.get("/nowhere"), 404, "not_found")
    answer = api.http.delete("/v1/verifications", headers=api.headers)
    problem(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["Allow"]


def test_the_unexpected_is_a_500_that_tells_nothing(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    with api.database.transaction() as tx:
        tx.execute("ALTER TABLE accounts RENAME COLUMN email TO mail")
    body = problem(api.create(), 500, "internal_error")
    assert "mail" not in str(body)


def test_without_the_database_the_answer_is_503_and_says_when_to_come_back(api: Api) -> None:
    with api.database.transaction() as tx:
        tx.execute("SET LOCAL lock_timeout = 0")
        tx.execute("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")
        tx.execute("SELECT 1").fetchone()
        impatient = Database(api.database._url, statement_timeout=0.2, size=1)
        answer = make_api_on(impatient, api).create()
    assert problem(answer, 503, "database_unavailable")
    assert answer.headers["Retry-After"] == "2"
    impatient.close()


def make_api_on(database: Database, api: Api) -> Api:
    """The same caller at a service with another way to the database."""
    from app import create_app
    from app.services import Services
    from tests.support.api import SETTINGS
    from tests.support.courier import DATABASE_SETTINGS

    app = create_app(Services(SETTINGS, database, DATABASE_SETTINGS, lambda: None))
    return Api(database, app.test_client(), api.owner)
