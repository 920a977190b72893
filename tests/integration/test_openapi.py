"""The description says all that the API does: each call, answer and example. Every answer here is checked against it."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app import description, errors, examples
from app.errors import MOST_ERRORS
from app.field_codes import FIELD_CODES
from db import brandings, clients
from db.session import Database
from tests.support.api import Api, make_api, use_up_judging
from tests.support.courier import DATABASE_SETTINGS, make_courier
from tests.support.described import Described

NOWHERE = "smtp://127.0.0.1:1"
ANY_ID = dict(examples.IDS)
# Nobody can cause it; were there a way, it would be mended.
UNREACHABLE = {"internal_error"}


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database, return_urls=("https://host.example/",))


@pytest.fixture
def service(api: Api) -> Described:
    """Called by a test client, who may call everything."""
    owner = clients.create(api.database, "tests", ("https://host.example/",), is_test=True)
    return Described(dataclasses.replace(api, owner=owner))


@pytest.fixture
def document(service: Described) -> dict[str, Any]:
    return service.document


def names(document: dict[str, Any]) -> list[str]:
    return [operation["operationId"] for _, _, operation in description.operations(document)]


def body_of(name: str) -> dict[str, Any]:
    """A request's body as the first example has it."""
    given = next(iter(examples.REQUESTS.get(name, {}).values()), None)
    return {"json": given.value} if given else {}


def create(service: Described, key: str = "key-1", **changes: Any) -> str:
    body = {"account_id": "42", "email": "ada@example.com", **changes}
    answer = service.call("verifications_create", json=body, headers={"Idempotency-Key": key})
    made: str = answer.get_json()["verification_id"]
    return made


def sent(service: Described, **changes: Any) -> tuple[str, str]:
    """A verification whose mail went to the simulator, and its token."""
    made = create(service, **changes)
    make_courier(service.api.database, NOWHERE).drain()
    return made, service.call("verifications_token", path={"verification_id": made}).get_json()["token"]


# The document


def test_every_route_of_the_api_is_described_and_nothing_else(api: Api, document: dict[str, Any]) -> None:
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in api.http.application.url_map.iter_rules()
        if rule.rule.startswith("/v1")
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert routes == {(path, method) for path, method, _ in description.operations(document)}


def test_each_call_has_words_a_name_of_its_own_an_example_of_its_answer_and_links_that_lead_somewhere(
    document: dict[str, Any],
) -> None:
    there = names(document)
    assert len(there) == len(set(there))
    for path, _, operation in description.operations(document):
        assert operation["summary"] and operation["description"] and operation["tags"]
        for parameters in (document["paths"][path], operation):
            assert all(parameter["description"] for parameter in parameters.get("parameters", []))
        assert operation["operationId"] in examples.ANSWERS, operation["operationId"]
        assert "requestBody" not in operation or operation["operationId"] in examples.REQUESTS
        for answer in operation["responses"].values():
            assert {link["operationId"] for link in answer.get("links", {}).values()} <= set(there)
    assert set(examples.ANSWERS) == set(there)
    assert set(examples.REQUESTS) <= set(there)
    assert {*examples.LINKS, *(target for links in examples.LINKS.values() for target in links)} <= set(there)


def test_every_reference_leads_somewhere_and_every_schema_is_one(service: Described) -> None:
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(service.document))):
        assert service.resolve({"$ref": reference}), reference
    for schema in service.document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_patterns_are_read_alike_by_every_engine(document: dict[str, Any]) -> None:
    patterns = [
        json.loads(found) for found in re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(document))
    ]
    assert len(patterns) > 20
    for pattern in patterns:
        assert pattern[0] == "^" and pattern[-1] == "$", pattern
        # Python's anchors are nobody else's; what names half a surrogate pair is refused or ignored as a whole by many.
        assert not re.search(r"\\[AZzh]|\\u[dD][89abAB]|[\ud800-\udfff]", pattern), pattern
        re.compile(pattern)


def test_the_statuses_that_any_call_may_answer_are_everywhere(service: Described) -> None:
    for _, _, operation in description.operations(service.document):
        common = {"400", "413", "500", "503"}
        if "security" in operation:
            common |= {"401", "403"}
        if "requestBody" in operation:
            common |= {"415", "422"}
        assert common <= set(operation["responses"]), operation["operationId"]


def test_all_problems_and_field_codes_are_listed(document: dict[str, Any]) -> None:
    assert {row["code"] for row in document[description.PROBLEMS]} == set(errors.by_code())
    assert {row["code"] for row in document[description.FIELDS]} == set(FIELD_CODES)


def test_the_shortest_life_is_that_of_the_settings(service: Described) -> None:
    lifetime = service.document["components"]["schemas"]["NewVerification"]["properties"]["expires_in"]
    shortest = lifetime["exclusiveMinimum"]
    refused = service.call(
        "verifications_create", json={"account_id": "1", "email": "ada@example.com", "expires_in": shortest}
    )
    assert refused.get_json()["errors"][0]["pointer"] == "/expires_in"
    create(service, expires_in=shortest + 1)


# Examples


def test_examples_of_answers_fit_their_shapes(service: Described) -> None:
    for _, _, operation in description.operations(service.document):
        for status, answer in operation["responses"].items():
            for content in service.resolve(answer)["content"].values():
                shown = [example["value"] for example in content.get("examples", {}).values()]
                for example in [*shown, *([content["example"]] if "example" in content else [])]:
                    service.validate(content["schema"], example)
                assert shown or "example" in content, (operation["operationId"], status)


@pytest.mark.parametrize(
    ("name", "which"),
    [
        (name, which)
        for name, given in examples.REQUESTS.items()
        for which in given
        if name != "tokens_consume"
    ],
)
def test_examples_of_requests_are_taken_and_answered_as_the_example_says(
    service: Described, name: str, which: str
) -> None:
    example = examples.REQUESTS[name][which]
    path = {"verification_id": create(service)} if "cancel" in name else {}
    answer = service.call(name, json=example.value, path=path)
    assert answer.status_code < 300, answer.text
    assert set(answer.get_json()) == set(examples.ANSWERS[name])


def test_the_example_of_a_token_is_typed_as_one_that_is_taken(service: Described) -> None:
    _, token = sent(service)
    example = examples.REQUESTS["tokens_consume"]["typed"].value["token"]
    typed = token.replace("-", " ").lower()
    assert re.sub(r"\w", "x", typed) == re.sub(r"\w", "x", example)
    answer = service.call("tokens_consume", json={"token": typed}, with_key=False)
    assert (answer.status_code, set(answer.get_json())) == (200, set(examples.ANSWERS["tokens_consume"]))


def test_examples_of_what_is_only_read_have_the_members_of_real_answers(service: Described) -> None:
    made, _ = sent(service)
    by_id = {"verification_id": made}
    for name, path in [
        *(("verifications_show", by_id), ("verifications_receipt", by_id), ("verifications_token", by_id)),
        *(("verifications_list", {}), ("changes_list", {}), ("branding_show", {}), ("branding_reset", {})),
    ]:
        assert members(service.call(name, path=path).get_json()) >= members(examples.ANSWERS[name]), name


def members(value: Any, at: str = "") -> set[str]:
    """Every member's path; what callers name themselves (metadata, wording) counts as one."""
    if isinstance(value, list):
        return set().union(*(members(item, f"{at}[]") for item in value))
    if not isinstance(value, dict) or at.endswith(("/metadata", "/branding")):
        return {at}
    return {at}.union(*(members(item, f"{at}/{name}") for name, item in value.items()))


def test_a_receipt_as_text_begins_as_the_example_does(service: Described) -> None:
    made = create(service)
    text = service.call(
        "verifications_receipt", path={"verification_id": made}, headers={"Accept": "text/plain"}
    ).text
    assert re.match(
        r"Verification ver_\w+: \w+\n  for        a\*\*\*@example\.com \(account 42, signup\)\n", text
    )
    assert re.match(r"Verification ver_\w+: \w+\n  for        a\*\*\*@example\.com", examples.RECEIPT_TEXT)


# What each call answers


def test_every_call_answers_every_problem_that_its_description_names(service: Described, api: Api) -> None:
    cause_common(service)
    cause_own(service, api)
    cause_limits(service)
    cause_refusals_by_key(service)
    for name in names(service.document):
        caused = {code for operation, _, code in service.seen if operation == name and code}
        assert service.codes(name) - UNREACHABLE == caused, name


def cause_common(service: Described) -> None:
    """What the HTTP layer says, whatever the call does."""
    for _, method, operation in list(description.operations(service.document)):
        name = operation["operationId"]
        service.call(name, path=ANY_ID, headers={"Transfer-Encoding": "gzip, chunked"}, **body_of(name))
        service.call(name, path=ANY_ID, data=b"x" * 20_000, content_type="application/json")
        if "requestBody" in operation:
            service.call(name, path=ANY_ID, data=b"{", content_type="application/json")
            service.call(name, path=ANY_ID, data=b"x", content_type="text/plain")
            service.call(name, path=ANY_ID, json={"no_such_field": 1})
        elif any(parameter["in"] == "query" for parameter in operation.get("parameters", [])):
            service.call(name, query_string={"limit": "0"})
        assert method in {"get", "post", "put", "delete"}


def cause_own(service: Described, api: Api) -> None:
    """What each call says of its own."""
    nobody = {"path": ANY_ID}
    for name in ("show", "receipt", "cancel", "token"):
        service.call(f"verifications_{name}", **nobody)
    service.call(
        "verifications_create", headers={"Idempotency-Key": "a b"}, **body_of("verifications_create")
    )
    made, token = sent(service)
    service.call("verifications_receipt", path={"verification_id": made}, headers={"Accept": "text/html"})
    service.call(
        "verifications_create",
        json={"account_id": "other", "email": "ada@example.com"},
        headers={"Idempotency-Key": "key-1"},
    )
    service.call("tokens_consume", json={"token": token})
    service.call("tokens_consume", json={"token": token})
    service.call("tokens_consume", json={"token": "0" * 16})
    service.call("verifications_cancel", path={"verification_id": made})
    service.call("verifications_create", json={"account_id": "42", "email": "ada@example.com"})
    waiting = create(service, "key-2", account_id="43")
    service.call("verifications_token", path={"verification_id": waiting})
    make_courier(service.api.database, NOWHERE).drain()
    dead = service.call("verifications_token", path={"verification_id": waiting}).get_json()["token"]
    service.call("verifications_cancel", path={"verification_id": waiting})
    service.call("tokens_consume", json={"token": dead})
    service.call("branding_preview", json={"purpose": "signup"})
    Described(api, seen=service.seen).call("verifications_token", **nobody)


def cause_limits(service: Described) -> None:
    """429 of every kind, each by a service with that limit alone."""
    none = DATABASE_SETTINGS.limits
    for number, changed in enumerate(({"cooldown": 60}, {"max_waiting": 1}, {"client": 1})):
        limits = dataclasses.replace(none, **changed)
        limited = make_api(service.api.database, f"limited {number}", limits=limits, consume_limit=1)
        caller = Described(limited, seen=service.seen)
        create(caller)
        for account in ("42", "43"):
            caller.call("verifications_create", json={"account_id": account, "email": "ada@example.com"})
    for _ in range(2):
        caller.call("tokens_consume", json={"token": "0" * 16})
    for number in range(brandings._HOURLY + 1):
        caller.call("branding_replace", json={"name": f"Shop {number}"})
    judged = make_api(service.api.database, "judged")
    use_up_judging(judged)
    Described(judged, seen=service.seen).call(
        "branding_preview", json={"branding": {"name": "Shop"}, "purpose": "signup"}
    )


def cause_refusals_by_key(service: Described) -> None:
    """No key, a key of a client that was switched off, no database."""
    for _, _, operation in list(description.operations(service.document)):
        if "security" in operation:
            service.call(
                operation["operationId"], with_key=False, path=ANY_ID, **body_of(operation["operationId"])
            )
    clients.disable(service.api.database, "tests")
    for _, _, operation in list(description.operations(service.document)):
        if "security" in operation:
            service.call(operation["operationId"], path=ANY_ID, **body_of(operation["operationId"]))
    service.api.database.close()
    service.api.database._url = "postgresql://postgres@127.0.0.1:1/nowhere"
    for _, _, operation in list(description.operations(service.document)):
        service.call(operation["operationId"], path=ANY_ID, **body_of(operation["operationId"]))


def test_thousands_of_faults_are_told_as_the_first_of_them(service: Described) -> None:
    wording = {"fr": {f"no_such_{number}": "x" for number in range(200)}}
    answer = service.call("branding_replace", json={"name": "Shop", "wording": wording})
    assert len(answer.get_json()["errors"]) == MOST_ERRORS


# Beside the calls


@pytest.mark.parametrize(
    "path", ["/v1/verifications", "/v1/verifications/{verification_id}", "/v1/tokens/consume"]
)
def test_other_methods_are_405_and_allow_names_those_there_are(
    service: Described, document: dict[str, Any], path: str
) -> None:
    there = {method.upper() for found, method, _ in description.operations(document) if found == path}
    implied = {"OPTIONS", *({"HEAD"} if "GET" in there else ())}
    target = path.format(**ANY_ID)
    for method in {"GET", "PUT", "PATCH", "DELETE", "TRACE", "POST"} - there:
        for override in ({}, {"X-HTTP-Method-Override": min(there), "X-Method-Override": min(there)}):
            answer = service.api.http.open(target, method=method, headers={**service.api.headers, **override})
            assert (answer.status_code, answer.get_json(force=True)["code"]) == (405, "method_not_allowed")
            assert set(answer.headers["Allow"].split(", ")) == there | implied
    allowed = service.api.http.open(target, method="OPTIONS", headers=service.api.headers)
    assert (allowed.status_code, set(allowed.headers["Allow"].split(", "))) == (200, there | implied)


def test_head_is_get_without_the_body(service: Described) -> None:
    made = create(service)
    for path in ("/openapi.json", "/docs", f"/v1/verifications/{made}", "/v1/verifications/ver_0"):
        got, headed = service.api.get(path), service.api.http.head(path, headers=service.api.headers)
        assert (headed.status_code, headed.data) == (got.status_code, b"")
        assert headed.headers["Content-Type"] == got.headers["Content-Type"]
        assert headed.headers["Content-Length"] == got.headers["Content-Length"]


@pytest.mark.parametrize("path", ["/v1/verifications", "/v1/changes", "/docs", "/openapi.json"])
def test_a_slash_at_the_end_makes_no_difference(service: Described, path: str) -> None:
    without, slash = service.api.get(path), service.api.get(f"{path}/")
    assert (slash.status_code, slash.data) == (without.status_code, without.data)
    assert slash.status_code == 200


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1//verifications", "/v2/verifications", "/docs/x"])
@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/json;q=0"])
def test_unknown_paths_are_problems_whatever_the_caller_accepts(
    service: Described, path: str, accept: str
) -> None:
    answer = service.api.http.get(path, headers={"Accept": accept})
    assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")
