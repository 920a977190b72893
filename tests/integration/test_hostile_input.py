"""Whatever is sent to any call: a 4xx that names what is wrong and repeats nothing of it, and the service goes on.

Calls are taken from the routing table, so that a new one is met by all of this as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.body import LARGEST
from db.session import Database
from dev.postgres import Postgres
from tests.support import corpus
from tests.support.api import BODY, Api, make_api
from tests.support.calls import NOBODY, calls, path_of
from tests.support.corpus import CANARY

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PROBLEM = "application/problem+json"
WRITES = [
    (method, rule)
    for method, rule in calls()
    if method in {"POST", "PUT", "PATCH"} and rule.startswith("/v1/")
]
WITH_IDS = [(method, rule) for method, rule in calls() if "<" in rule]
# Its body may be left out.
CANCEL = "/v1/verifications/<verification_id>/cancel"
_numbers = count(1)


@pytest.fixture(scope="module")
def one_api(postgres: Postgres) -> Iterator[Api]:
    with ExitStack() as stack:
        database = Database(
            postgres.create_database("hostile_input", template="migrated"), statement_timeout=4.0, size=4
        )
        stack.callback(postgres.drop_database, "hostile_input")
        stack.callback(database.close)
        yield make_api(database, consume_limit=0)


@pytest.fixture
def api(one_api: Api) -> Iterator[Api]:
    yield one_api
    assert create(one_api).status_code == 202, "the service goes on"


def create(api: Api, key: str | None = None, **changes: Any) -> TestResponse:
    """A good request for an account of its own, changed by `changes`."""
    number = next(_numbers)
    return api.create(
        key, **{"account_id": f"account-{number}", "email": f"ada{number}@example.com", **changes}
    )


def send(api: Api, call: tuple[str, str], body: bytes, **headers: str) -> TestResponse:
    method, rule = call
    return api.http.open(path_of(rule), method=method, data=body, headers={**api.headers, **JSON, **headers})


def refused(answer: TestResponse, *statuses: int) -> dict[str, Any]:
    """A problem that repeats nothing; its document."""
    text = answer.get_data(as_text=True)
    assert answer.status_code in statuses, (answer.status_code, text)
    assert answer.mimetype == PROBLEM
    repeats_nothing(answer)
    problem: dict[str, Any] = json.loads(text)
    assert problem["status"] == answer.status_code
    assert problem["request_id"] == answer.headers["X-Request-ID"]
    return problem


def repeats_nothing(answer: TestResponse) -> None:
    text = f"{answer.get_data(as_text=True)}{answer.headers}"
    assert CANARY not in text.lower()
    assert "Traceback" not in text


def errors(answer: TestResponse) -> list[tuple[str, str]]:
    return [(error["pointer"], error["code"]) for error in refused(answer, 422)["errors"]]


def polite(answer: TestResponse) -> None:
    """No failure of ours, and nothing repeated: what more it is depends on the call."""
    assert answer.status_code < 300 or 400 <= answer.status_code < 500, (
        answer.status_code,
        answer.get_data(),
    )
    assert answer.status_code < 400 or answer.mimetype in {PROBLEM, "text/html"}
    repeats_nothing(answer)


def test_there_are_calls_to_attack() -> None:
    assert {("POST", "/v1/verifications"), ("POST", "/v1/tokens/consume"), ("POST", CANCEL)} <= set(WRITES)
    assert {("GET", "/verify"), ("POST", "/verify"), ("GET", "/v1/verifications")} <= set(calls())
    assert len(WITH_IDS) >= 2


# Bodies


@pytest.mark.parametrize("call", WRITES, ids=" ".join)
def test_what_is_no_strict_json_is_refused(api: Api, call: tuple[str, str]) -> None:
    for kind, body in corpus.NOT_JSON.items():
        if body or call[1] != CANCEL:
            assert refused(send(api, call, body), 400)["code"] == "malformed_json", kind


@pytest.mark.parametrize("call", WRITES, ids=" ".join)
def test_json_that_is_no_object_is_refused(api: Api, call: tuple[str, str]) -> None:
    for body in corpus.NO_OBJECT:
        assert errors(send(api, call, body)) == [("", "invalid_type")], body


@pytest.mark.parametrize("call", WRITES, ids=" ".join)
@pytest.mark.parametrize("field", ["account_id", "email", "metadata", "expires_in", "token", "nowhere"])
def test_json_that_nothing_could_keep_is_refused_where_it_stands(
    api: Api, call: tuple[str, str], field: str
) -> None:
    for kind, (value, below, code) in corpus.UNFIT.items():
        body = b'{"other": "x", "%b": %b}' % (field.encode(), value)
        assert errors(send(api, call, body)) == [(f"/{field}{below}", code)], kind


def test_bodies_beyond_the_limit_are_refused_by_every_call(api: Api) -> None:
    large = b'{"a": "%b"}' % (CANARY.encode() * LARGEST)
    for method, rule in calls():
        answer = send(api, (method, rule), large, **(FORM if rule == "/verify" else JSON))
        assert answer.status_code == 413, (method, rule)
        polite(answer)


def test_a_body_of_exactly_the_limit_is_read(api: Api) -> None:
    call, body = ("POST", "/v1/verifications"), json.dumps(BODY | {"account_id": "limit"}).encode()
    assert send(api, call, body.ljust(LARGEST)).status_code == 202
    assert refused(send(api, call, body.ljust(LARGEST + 1)), 413)["code"] == "body_too_large"


@pytest.mark.parametrize("call", WRITES, ids=" ".join)
def test_what_is_not_declared_as_plain_json_is_refused(api: Api, call: tuple[str, str]) -> None:
    declared = [{"Content-Type": content_type} for content_type in corpus.CONTENT_TYPES]
    for headers in [*declared, *({"Content-Encoding": encoding} for encoding in corpus.ENCODINGS)]:
        answer = send(api, call, b'{"a": "%b"}' % CANARY.encode(), **headers)
        assert refused(answer, 415)["code"] == "unsupported_media_type", headers


@pytest.mark.parametrize("content_type", corpus.GOOD_CONTENT_TYPES)
def test_json_in_utf8_is_taken_however_it_is_declared(api: Api, content_type: str) -> None:
    body = json.dumps(BODY | {"account_id": content_type}).encode()
    answer = send(api, ("POST", "/v1/verifications"), body, **{"Content-Type": content_type})
    assert answer.status_code in {202, 429}, "the address is the same as another's"


# Fields

LONGEST = {"account_id": 255, "email": 320, "purpose": 64, "locale": 35, "return_url": 2000}
GOOD = {
    "account_id": "acc",
    "email": "ada@example.com",
    "purpose": "signup",
    "locale": "en-GB",
    "return_url": "https://host.example/x",
}
OPTIONAL = ("locale", "return_url", "metadata", "expires_in")


@pytest.mark.parametrize("field", [*LONGEST, "metadata", "expires_in"])
def test_a_field_of_another_type_is_named(api: Api, field: str) -> None:
    takes = {"metadata": {"an object", "an empty object"}, "expires_in": {"zero", "a number", "a fraction"}}
    for kind, value in corpus.WRONG_TYPES.items():
        if kind not in takes.get(field, ()) and not (value is None and field in OPTIONAL):
            assert errors(create(api, **{field: value})) == [(f"/{field}", "invalid_type")], kind
    for value in ("", "1", CANARY, "1e3", "true", "null") if field not in LONGEST else ():
        assert errors(create(api, **{field: value})) == [(f"/{field}", "invalid_type")], value


def test_a_token_of_another_type_or_kind_is_refused(api: Api) -> None:
    def consume(value: Any) -> TestResponse:
        return api.http.post("/v1/tokens/consume", json={"token": value})

    for kind, value in corpus.WRONG_TYPES.items():
        assert errors(consume(value)) == [("/token", "invalid_type")], kind
    for value in ("", CANARY * 100):
        assert errors(consume(value)) == [("/token", "invalid_length")]
    for text in (CANARY, *corpus.UNSEEN.values(), *corpus.ODD_TEXTS.values()):
        assert refused(consume(f"{text}{CANARY}"), 422)["code"] in {"verification_invalid", "invalid_request"}


def test_the_form_takes_any_text_for_a_token_that_is_none(api: Api) -> None:
    """It keeps what was typed in its field, as text."""
    odd = {**corpus.UNSEEN, **corpus.ODD_TEXTS, "NUL": "\0", "long": "x" * 9000, "much": "\U0001f600" * 3000}
    for kind, text in odd.items():
        for form in ({"token": text, "action": "confirm"}, {"token": "x", "action": text}, {text: text}):
            answer = api.http.post("/verify", data=form)
            assert answer.status_code in {413, 422}, kind
            assert "<script>alert" not in answer.get_data(as_text=True)


@pytest.mark.parametrize("field", LONGEST)
def test_a_text_longer_than_its_limit_is_named(api: Api, field: str) -> None:
    longest = LONGEST[field]
    for text in ("", "a" * (longest + 1), "a" * 15_000, "\u20ac" * (longest + 1)):
        assert errors(create(api, **{field: text})) == [(f"/{field}", "invalid_length")], len(text)


def test_texts_of_exactly_their_limit_are_taken(api: Api) -> None:
    locale = "en-" + "-".join(["abcdefgh"] * 3) + "-abcde"
    for field, text in {"account_id": "\U0001f600" * 255, "purpose": "p" * 64, "locale": locale}.items():
        assert len(text) in {LONGEST[field], 35}
        assert create(api, **{field: text}).status_code == 202, field


@pytest.mark.parametrize("field", LONGEST)
def test_characters_that_nobody_sees_or_that_change_their_neighbours_are_refused(
    api: Api, field: str
) -> None:
    good = GOOD[field]
    for kind, character in corpus.UNSEEN.items():
        for text in (character + good, good[:2] + character + good[2:], good + character):
            answer = create(api, **{field: text})
            assert [pointer for pointer, _ in errors(answer)] == [f"/{field}"], kind
            assert character not in answer.get_json()["errors"][0]["detail"]


HEADER_INJECTIONS = (
    *("\r\nBcc: eve@example.com", "\nSubject: x", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\0"),
    *("%0d%0aBcc: x", "\\r\\nBcc: x", "\r\n\r\nbody"),
)


@pytest.mark.parametrize("field", ["email", "purpose", "locale"])
def test_nothing_that_a_mail_is_made_of_brings_a_header_along(api: Api, field: str) -> None:
    good = GOOD[field]
    for injection in HEADER_INJECTIONS:
        for text in (good + injection, injection + good, good[:2] + injection + good[2:]):
            assert [pointer for pointer, _ in errors(create(api, **{field: text}))] == [f"/{field}"], repr(
                text
            )


def test_odd_text_is_kept_as_it_is(api: Api) -> None:
    for kind, text in corpus.ODD_TEXTS.items():
        made = create(api, account_id=text, metadata={text: [text]})
        assert made.status_code == 202, kind
        shown = api.get(f"/v1/verifications/{made.get_json()['verification_id']}").get_json()
        assert (shown["account_id"], shown["metadata"]) == (text, {text: [text]})


def test_metadata_keeps_all_that_json_can_say(api: Api) -> None:
    """It is the client's own and goes nowhere but back: there, what nobody sees does no harm."""
    kept = {f"k{character}": f"{character}v" for character in corpus.UNSEEN.values()}
    made = create(api, metadata=kept)
    assert made.status_code == 202
    assert api.get(f"/v1/verifications/{made.get_json()['verification_id']}").get_json()["metadata"] == kept


def test_metadata_of_more_than_its_limit_is_named(api: Api) -> None:
    many = {f"k{number}": number for number in range(1000)}
    for metadata in ({"a": "x" * 4090}, {"a": "\u20ac" * 700}, many, {"a": [0] * 2100}):
        assert errors(create(api, metadata=metadata)) == [("/metadata", "too_large")]


@pytest.mark.parametrize("value", [0, -0.0, -1, 1e-300, 300, 299.9, 2_592_001, 1e15, -1e15, 2**63 - 1])
def test_a_life_that_makes_no_sense_is_named(api: Api, value: float) -> None:
    assert errors(create(api, expires_in=value)) == [("/expires_in", "out_of_range")]


@pytest.mark.parametrize("name", ["", "Email", "e\u200bmail", "__proto__", "email ", "a/b~c", "x" * 5000])
def test_an_unknown_field_is_named_in_a_bounded_way(api: Api, name: str) -> None:
    ((pointer, code),) = errors(create(api, **{name: CANARY}))
    assert code == "unknown_field"
    assert len(pointer) <= 2 * 64 + 1


def test_hundreds_of_wrong_fields_are_one_bounded_answer(api: Api) -> None:
    answer = api.http.post(
        "/v1/verifications", json=dict.fromkeys(map(str, range(1500)), 1), headers=api.headers
    )
    assert answer.status_code == 422
    assert len(answer.get_data()) < 10_000


# Headers


def test_an_idempotency_key_that_is_none_is_refused(api: Api) -> None:
    for key in corpus.IDEMPOTENCY_KEYS:
        assert refused(create(api, key), 400)["code"] == "invalid_idempotency_key", key


def test_a_request_id_that_is_none_is_replaced_everywhere(api: Api) -> None:
    for method, rule in calls():
        for given in corpus.REQUEST_IDS:
            answer = api.http.open(
                path_of(rule), method=method, headers=api.headers | {"X-Request-ID": given}
            )
            assert answer.headers["X-Request-ID"].startswith("req_")
            polite(answer)


def test_a_key_that_is_none_opens_nothing(api: Api) -> None:
    closed = [call for call in calls() if call[1].startswith("/v1/") and call[1] != "/v1/tokens/consume"]
    assert len(closed) >= 4
    for call in closed:
        for given in corpus.AUTHORIZATIONS:
            answer = send(api, call, json.dumps(BODY).encode(), Authorization=given)
            assert refused(answer, 401)["code"] == "unauthorized", (call, given)


# The headers that somebody reads, or might one day.
READ = (
    *(
        "Accept",
        "Accept-Language",
        "Accept-Encoding",
        "Accept-Charset",
        "Range",
        "If-None-Match",
        "If-Modified-Since",
    ),
    *(
        "Cookie",
        "Origin",
        "Referer",
        "User-Agent",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "Forwarded",
        "Via",
        "TE",
    ),
    *("X-HTTP-Method-Override", "X-Original-URL", "Upgrade", "Date", "From", "Max-Forwards", "Traceparent"),
)
ODD_VALUES = (
    *(
        "",
        CANARY,
        "*",
        "\xff\xfe",
        ",;=",
        "0",
        "-1",
        "x" * 8000,
        '"',
        "a=b; c",
        "bytes=0-",
        "text/html;q=NaN",
    ),
    *("de-;q=1e9", "*/*;q=1e999", "en;q=-1", "application/json;q=0", ", , ,", "%00", "127.0.0.1, ::1, x"),
)


def test_no_header_makes_a_call_fail(api: Api) -> None:
    for method, rule in calls():
        for value in ODD_VALUES:
            headers = api.headers | dict.fromkeys(READ, value)
            polite(api.http.open(path_of(rule), method=method, headers=headers))


# Paths and query strings


def test_no_path_makes_the_service_fail(api: Api) -> None:
    for method, rule in calls():
        for odd in corpus.PATHS:
            for path in {path_of(rule, odd)} if "<" in rule else {f"{rule}/{odd}", f"{rule}{odd}"}:
                polite(api.http.open(path, method=method, headers=api.headers))


def test_a_method_that_no_call_has_is_refused(api: Api) -> None:
    for method in ("TRACE", "CONNECT", "PROPFIND", "QUERY", "X" * 100, CANARY):
        for _, rule in calls():
            answer = api.http.open(path_of(rule), method=method, headers=api.headers)
            assert answer.status_code == 405
            polite(answer)


@pytest.mark.parametrize(("method", "rule"), WITH_IDS)
def test_an_id_that_is_none_is_not_found(api: Api, method: str, rule: str) -> None:
    odd = (
        "ver_0",
        "ver_" + "g" * 32,
        "dlv_" + "0" * 32,
        "VER_" + "0" * 32,
        "ver_" + "0" * 33,
        NOBODY,
        CANARY,
    )
    for instead in odd:
        answer = api.http.open(path_of(rule, instead), method=method, headers=api.headers)
        # Only test keys may read a token, whatever the id.
        assert refused(answer, 403, 404)["code"] in {"not_found", "test_key_required"}


def test_no_query_string_makes_a_call_fail(api: Api) -> None:
    queried = [call for call in calls() if call[0] == "GET" and call[1] != "/openapi.json"]
    for method, rule in [*queried, ("POST", "/v1/verifications"), ("POST", "/verify")]:
        for query in corpus.QUERIES:
            polite(api.http.open(f"{path_of(rule)}?{query}", method=method, headers=api.headers))
