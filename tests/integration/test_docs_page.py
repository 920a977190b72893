"""`/docs` shows all that the description says, is one document without script, and its commands are requests that work."""

from __future__ import annotations

import dataclasses
import html
import json
import re

import pytest
from werkzeug.test import TestResponse

from app import description, docs_page, errors, examples
from app.field_codes import FIELD_CODES
from db import clients
from db.session import Database
from tests.support import curl
from tests.support.api import make_api
from tests.support.described import Described


@pytest.fixture
def service(database: Database) -> Described:
    """Called by a test client, who may call everything."""
    return_urls = (examples.RETURN_URL,)
    api = make_api(database, return_urls=return_urls)
    owner = clients.create(database, "tests", return_urls, is_test=True)
    return Described(dataclasses.replace(api, owner=owner))


@pytest.fixture
def page(service: Described) -> TestResponse:
    return service.api.http.get("/docs")


def names(service: Described) -> set[str]:
    return {operation["operationId"] for _, _, operation in description.operations(service.document)}


def shown(page: TestResponse, *, of: str = "") -> list[str]:
    """What stands in blocks of code, as a person would copy it."""
    return [html.unescape(text) for text in re.findall(rf"<pre[^>]*{of}[^>]*>([^<]*)</pre>", page.text)]


def test_every_call_shape_and_code_has_a_place_of_its_own(service: Described, page: TestResponse) -> None:
    assert (page.status_code, page.mimetype) == (200, "text/html")
    ids = re.findall(r' id="([^"]+)"', page.text)
    assert len(ids) == len(set(ids))
    wanted = names(service) | {f"error-{code}" for code in errors.by_code()}
    wanted |= {f"field-{code}" for code in FIELD_CODES}
    wanted |= {f"shape-{name}" for name in service.document["components"]["schemas"]}
    assert wanted <= set(ids)


def test_every_link_leads_somewhere_on_the_page_or_to_the_description(page: TestResponse) -> None:
    targets = re.findall(r'href="([^"]*)"', page.text)
    ids = set(re.findall(r' id="([^"]+)"', page.text))
    assert {target.removeprefix("#") for target in targets if target.startswith("#")} <= ids
    assert {target for target in targets if not target.startswith("#")} == {"/openapi.json"}


def test_every_word_of_the_description_is_there(service: Described, page: TestResponse) -> None:
    read = letters(re.sub(r"<[^>]+>", "", page.text))
    told = [service.document["info"]["description"]]
    for _, _, operation in description.operations(service.document):
        told += [operation["summary"], operation["description"]]
        told += [parameter.get("description", "") for parameter in operation.get("parameters", [])]
    for schema in service.document["components"]["schemas"].values():
        told += [field.get("description", "") for field in schema.get("properties", {}).values()]
    told += [text for problem in errors.by_code().values() for text in (problem.title, problem.detail)]
    told += [text for words in FIELD_CODES.values() for text in (words.meaning, words.remedy)]
    missing = [text for text in told if letters(html.escape(text).replace("`", "")) not in read]
    assert missing == []


def letters(escaped: str) -> str:
    """HTML's text but for its white space."""
    return "".join(html.unescape(escaped).split())


def test_every_example_of_an_answer_is_there(service: Described, page: TestResponse) -> None:
    blocks = shown(page)
    for name, answer in examples.ANSWERS.items():
        assert json.dumps(answer, indent=2, ensure_ascii=False) in blocks, name
    for response in service.document["components"]["responses"].values():
        for code, example in response["content"][errors.MEDIA_TYPE]["examples"].items():
            assert json.dumps(example["value"], indent=2, ensure_ascii=False) in blocks, code


def test_each_refusal_of_a_call_is_named_under_it(service: Described, page: TestResponse) -> None:
    for name in names(service):
        section = page.text.partition(f'<section id="{name}">')[2].partition("</section>")[0]
        assert set(re.findall(r'href="#error-(\w+)"', section)) == service.codes(name), name


def test_the_page_runs_no_script_and_loads_nothing(page: TestResponse) -> None:
    policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
    assert policy.keys() == {"default-src", "style-src", "form-action", "base-uri", "frame-ancestors"}
    style = policy.pop("style-src")
    assert set(policy.values()) == {"'none'"}
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", style)
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert (
        re.findall(r"<(?:script|link|img|iframe|form|object|embed|base)\b| (?:on\w+|src|style)=", page.text)
        == []
    )
    assert re.findall(r"url\(|@import", docs_page._STYLE) == []


def test_the_page_is_small_and_made_once(service: Described, page: TestResponse) -> None:
    assert len(page.data) < 150_000
    assert service.api.http.get("/docs").data == page.data


def test_the_commands_are_requests_that_work(service: Described, page: TestResponse) -> None:
    commands = shown(page, of="command")
    assert len(commands) >= len(names(service))
    for command in commands:
        answer = curl.run(service.api.http, command, {"API_KEY": service.api.owner.key})
        # Ids and tokens are nobody's; anything else would be a mistake.
        code = None if answer.status_code < 300 else answer.get_json(force=True)["code"]
        assert code in {None, "not_found", "verification_invalid"}, (command, code)
