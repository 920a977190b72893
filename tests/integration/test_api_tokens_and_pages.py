"""Using a token, by API and on the page: once, with few and stable errors; looking changes nothing."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from werkzeug.test import TestResponse

from app.page_words import WORDS, Case, Language
from db.session import Database
from db.tokens import grouped
from tests.support.api import Api, make_api, snapshot

RETURN_URL = "https://host.example/done?from=mail"


@pytest.fixture
def api(database: Database) -> Api:
    return make_api(database, return_urls=("https://host.example/done",))


def made(api: Api, key: str = "key-1", **changes: object) -> tuple[str, str]:
    """A verification's id and its token."""
    asked = {"return_url": RETURN_URL, **changes}
    verification_id = api.create(key, **asked).get_json()["verification_id"]
    return verification_id, api.token(verification_id)


def press(api: Api, token: str, action: str = "confirm") -> TestResponse:
    return api.http.post("/verify", data={"token": token, "action": action})


def problem(response: TestResponse) -> tuple[int, str]:
    return response.status_code, response.get_json(force=True)["code"]


def test_consume_confirms_once_with_no_api_key(api: Api) -> None:
    verification_id, token = made(api)
    answer = api.consume(token)
    body = answer.get_json()
    assert answer.status_code == 200
    assert set(body) == {"verification_id", "purpose", "consumed_at", "return_url"}
    assert (body["verification_id"], body["purpose"], body["return_url"]) == (
        verification_id,
        "signup",
        RETURN_URL,
    )
    before = snapshot(api.database)
    for _ in range(2):
        assert problem(api.consume(token)) == (409, "verification_already_used")
    assert snapshot(api.database) == before


@pytest.mark.parametrize("spelling", [grouped, str.lower, lambda t: f" {t[:8].lower()}-{t[8:]}\n"])
def test_spelling_is_forgiven(api: Api, spelling: object) -> None:
    _, token = made(api)
    assert callable(spelling)
    assert api.consume(spelling(token)).status_code == 200


def test_a_superseded_token_says_that_a_newer_one_exists(api: Api) -> None:
    _, old = made(api, "key-1")
    _, new = made(api, "key-2")
    answer = api.consume(old)
    assert problem(answer) == (410, "verification_expired")
    assert {key: answer.get_json(force=True)[key] for key in ("reason", "newer_exists")} == {
        "reason": "superseded",
        "newer_exists": True,
    }
    assert api.consume(new).status_code == 200


@pytest.mark.parametrize("token", ["x", "0" * 16, "U" * 16, "0000-0000-0000-0000", "ü" * 16])
def test_an_unknown_token_is_invalid(api: Api, token: str) -> None:
    assert problem(api.consume(token)) == (422, "verification_invalid")


@pytest.mark.parametrize(
    "body", [{}, {"token": 1}, {"token": ""}, {"token": None}, {"token": "x", "more": 1}]
)
def test_a_body_of_another_shape_is_an_invalid_request(api: Api, body: object) -> None:
    answer = api.http.post("/v1/tokens/consume", json=body)
    assert problem(answer) == (422, "invalid_request")


def test_an_answer_never_repeats_the_token(api: Api) -> None:
    _, old = made(api)
    _, token = made(api, "key-2")
    answers = [press(api, old), press(api, old, "revoke"), api.consume(token), api.consume(token)]
    answers += [press(api, token), press(api, token, "revoke"), press(api, "0" * 16)]
    for answer in answers:
        for each in (old, token):
            assert each not in answer.text
            assert grouped(each) not in answer.text


def test_what_may_be_tried_again_goes_back_into_the_field_and_nowhere_else(api: Api) -> None:
    typed = '"><script>0000</script>'
    page = press(api, typed)
    assert page.status_code == 422
    assert 'value="&#34;&gt;&lt;script&gt;0000&lt;/script&gt;"' in page.text
    assert typed not in page.text
    assert page.text.count("0000") == 1
    assert "0" * 65 not in press(api, "0" * 65).text


def test_the_answer_to_a_used_code_leads_on_but_not_by_api(api: Api) -> None:
    verification_id, token = made(api)
    press(api, token)
    again = press(api, token)
    assert f'href="{RETURN_URL}&amp;verification_id={verification_id}"' in again.text
    assert RETURN_URL not in press(api, token, "revoke").text
    assert "host.example" not in api.consume(token).text


def test_looking_at_the_page_changes_nothing_however_often(api: Api) -> None:
    _, token = made(api)
    before = snapshot(api.database)
    for path in ("/verify", f"/verify?token={token}", f"/verify?token={token}&action=confirm"):
        for method in ("GET", "HEAD", "OPTIONS"):
            assert api.http.open(path, method=method).status_code == 200
    assert snapshot(api.database) == before


def test_the_page_is_a_form_that_works_without_javascript(api: Api) -> None:
    page = api.http.get("/verify")
    assert page.mimetype == "text/html"
    assert '<form method="post" action="/verify"' in page.text
    assert '<label for="token">' in page.text
    assert re.search(r'<input id="token" name="token"', page.text)
    assert re.findall(r'<button name="action" value="(\w+)"', page.text) == ["confirm", "revoke"]
    assert len(page.data) < 30_000


def test_the_page_loads_nothing_from_anywhere_and_allows_only_its_own_style_and_script(api: Api) -> None:
    page = api.http.get("/verify")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.findall(r"https?://", page.text)
    assert not re.findall(r"\bon\w+=|style=", page.text)
    assert ".submit(" not in page.text
    assert ".click(" not in page.text
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["X-Content-Type-Options"] == "nosniff"


def test_pressing_the_button_confirms_and_offers_the_way_back(api: Api) -> None:
    verification_id, token = made(api)
    page = press(api, grouped(token).lower())
    assert page.status_code == 200
    assert "Your address is confirmed" in page.text
    assert f'href="{RETURN_URL}&amp;verification_id={verification_id}"' in page.text
    assert "a***@example.com is confirmed" in page.text
    assert "ada@example.com" not in page.text
    assert api.get(f"/v1/verifications/{verification_id}").get_json()["phase"] == "consumed"


def test_i_did_not_ask_for_this_revokes_and_may_be_pressed_again(api: Api) -> None:
    verification_id, token = made(api)
    for _ in range(2):
        assert "was cancelled" in press(api, token, "revoke").text
    shown = api.get(f"/v1/verifications/{verification_id}").get_json()
    assert (shown["phase"], shown["delivery_status"]) == ("cancelled", "cancelled")
    assert problem(api.consume(token)) == (410, "verification_expired")


def test_each_error_says_what_happened_and_what_to_do(api: Api) -> None:
    _, old = made(api, "key-1")
    _, used = made(api, "key-2")
    newer = press(api, old)
    assert (newer.status_code, "There is a newer mail" in newer.text) == (410, True)
    press(api, used)
    replaced = press(api, old)
    assert (replaced.status_code, "This link was replaced" in replaced.text) == (410, True)
    again = press(api, used)
    assert (again.status_code, "This address is already confirmed" in again.text) == (409, True)
    for wrong in ("", "nonsense", "0" * 16):
        invalid = press(api, wrong)
        assert (invalid.status_code, "This code is not valid" in invalid.text) == (422, True)
        assert "<form" in invalid.text


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "form",
    [
        "token={}",
        "token={}&action=",
        "token={}&action=revok",
        "token={}&action=CONFIRM",
        "token={}&action=delete",
        "token={}&Action=confirm",
        "token={}&action=revoke&action=confirm",
        "token={}&action=confirm&action=confirm",
        "token={}&token={}&action=confirm",
        "action=confirm",
        "",
    ],
)
def test_only_confirm_confirms_and_only_revoke_revokes(api: Api, form: str) -> None:
    _, token = made(api)
    before = snapshot(api.database)
    page = api.http.post("/verify", data=form.replace("{}", token), content_type=FORM)
    assert page.status_code == 422
    assert "This could not be read" in page.text
    assert "<form" in page.text
    assert snapshot(api.database) == before


def test_a_form_of_another_kind_does_nothing(api: Api) -> None:
    _, token = made(api)
    before = snapshot(api.database)
    assert api.http.post("/verify", json={"token": token, "action": "confirm"}).status_code == 422
    assert api.http.post(f"/verify?token={token}&action=confirm").status_code == 422
    assert snapshot(api.database) == before


@pytest.mark.parametrize("action", ["confirm", "revoke"])
def test_a_link_whose_newer_one_was_used_or_revoked_sends_nobody_searching(api: Api, action: str) -> None:
    _, old = made(api, "key-1")
    _, new = made(api, "key-2")
    press(api, new, action)
    page = press(api, old)
    assert page.status_code == 410
    assert "Only the newest mail works; if you used that one, there is nothing left to do." in page.text
    assert "run out" not in page.text


def test_every_page_takes_a_newer_link_opened_in_its_tab(api: Api) -> None:
    _, token = made(api)
    pages = [
        *(api.http.get("/verify"), press(api, "x"), press(api, "0" * 20_000), press(api, token, "revoke")),
        press(api, token),
    ]
    assert [page.status_code for page in pages] == [200, 422, 413, 200, 410]
    scripts = {tuple(re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)) for page in pages}
    ((script,),) = scripts
    assert "hashchange" in script


def test_an_overdue_and_a_cancelled_link_say_so(api: Api) -> None:
    _, token = made(api)
    with api.database.transaction() as tx:
        tx.execute(
            "UPDATE verifications SET created_at = created_at - interval '2 days', expires_at = clock_timestamp()"
        )
    assert "This link has run out" in press(api, token).text
    _, token = made(api, "key-2")
    press(api, token, "revoke")
    assert "This request was cancelled" in press(api, token).text


def test_a_page_that_breaks_is_still_a_page(api: Api) -> None:
    _, token = made(api)
    with api.database.transaction() as tx:
        tx.execute("ALTER TABLE accounts RENAME COLUMN activated_at TO since")
    broken = press(api, token)
    assert (broken.status_code, broken.mimetype) == (500, "text/html")
    assert "Something went wrong here" in broken.text
    too_large = press(api, "0" * 20_000)
    assert (too_large.status_code, too_large.mimetype) == (413, "text/html")
    assert "This could not be read" in too_large.text


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("*", "en"),
        ("fr", "en"),
        ("de", "de"),
        ("de-CH", "de"),
        ("DE-at", "de"),
        ("en-GB,de;q=0.8", "en"),
        ("de-DE;q=0.9,en;q=0.8", "de"),
        ("en;q=0.3,de;q=0.7", "de"),
        ("fr-FR,fr;q=0.9,de;q=0.5", "de"),
        ("de;q=0", "en"),
        ("de;q=0,*", "en"),
        (";;,q=,de;q=x", "en"),
        ("de" * 2000, "en"),
    ],
)
def test_the_page_speaks_the_browsers_language_or_english(
    api: Api, accepted: str | None, language: str
) -> None:
    headers = {} if accepted is None else {"Accept-Language": accepted}
    for page in (api.http.get("/verify", headers=headers), api.http.post("/verify", headers=headers)):
        assert f'<html lang="{language}">' in page.text
        assert page.headers["Content-Language"] == language
        assert "Accept-Language" in page.vary
    words = WORDS[Language(language)]
    assert words.messages[Case.ASK].title in api.http.get("/verify", headers=headers).text


@pytest.mark.parametrize("action", ["confirm", "revoke"])
def test_every_answer_to_a_known_code_speaks_the_language_of_its_request(api: Api, action: str) -> None:
    _, token = made(api, locale="de-AT")
    for _ in range(2):
        assert press(api, token, action).headers["Content-Language"] == "de"
    _, old = made(api, "key-2", locale="de", account_id="account-2", email="bob@example.com")
    _, new = made(api, "key-3", locale="en", account_id="account-2", email="bob@example.com")
    assert press(api, old, action).headers["Content-Language"] == "de"
    assert press(api, new, action).headers["Content-Language"] == "en"


def test_no_page_is_larger_than_30_kilobytes(api: Api) -> None:
    _, token = made(api)
    pages = [api.http.get("/verify"), press(api, "x" * 64), press(api, token), press(api, token, "revoke")]
    assert [len(page.data) < 30_000 for page in pages] == [True] * 4


def test_without_the_database_the_page_says_that_nothing_is_lost(api: Api) -> None:
    _, token = made(api)
    api.database.close()
    url = api.database._url
    api.database._url = "postgresql://postgres@127.0.0.1:1/nowhere"
    page = press(api, token)
    api.database._url = url
    assert (page.status_code, page.headers["Retry-After"]) == (503, "2")
    assert "Nothing is lost" in page.text
    assert f'value="{token}"' in page.text
