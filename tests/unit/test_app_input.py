"""What the API makes of what it is sent: JSON, keys, addresses, return URLs, request ids."""

from __future__ import annotations

import pytest
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from app import addresses, idempotency, return_urls, strict_json
from app.errors import InvalidIdempotencyKey, InvalidRequest, MalformedJson, UnsupportedMediaType
from app.request_log import request_id


def request(body: bytes, content_type: str | None = "application/json", **headers: str) -> Request:
    return Request(
        EnvironBuilder(method="POST", data=body, content_type=content_type, headers=headers).get_environ()
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[" * 8000,
        b'{"a":' * 2000,
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":"\xff"}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":"\n"}',
        b"{} {}",
    ],
)
def test_what_is_not_strict_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        strict_json.read(request(body))


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        (rb'{"a":"x\u0000"}', "/a", "invalid_characters"),
        (rb'{"a":[0,"\ud800"]}', "/a/1", "invalid_characters"),
        (rb'{"a":{"k\u0000":1}}', "/a", "invalid_characters"),
        (b'{"a/b":{"~":9223372036854775808}}', "/a~1b/~0", "number_too_large"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "/a" + "/0" * 8, "too_deep"),
    ],
)
def test_json_that_nothing_behind_could_hold_is_refused_where_it_stands(
    body: bytes, pointer: str, code: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        strict_json.read(request(body))
    assert [(error.pointer, error.code) for error in refused.value.errors] == [(pointer, code)]


@pytest.mark.parametrize(
    ("content_type", "headers"),
    [
        (None, {}),
        ("text/plain", {}),
        ("application/x-www-form-urlencoded", {}),
        ("application/json; charset=latin-1", {}),
        ("application/json", {"Content-Encoding": "gzip"}),
    ],
)
def test_a_body_that_is_not_declared_as_json_is_not_read(
    content_type: str | None, headers: dict[str, str]
) -> None:
    with pytest.raises(UnsupportedMediaType):
        strict_json.read(request(b"{}", content_type, **headers))


def test_a_declared_charset_of_utf8_is_fine() -> None:
    assert strict_json.read(request('{"a":"ü"}'.encode(), "application/json; charset=UTF-8")) == {"a": "ü"}


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        (" abc\t", "abc"),
        ('"a,b"', "a,b"),
        (r'"a\"b\\c"', r"a\b".replace("\\b", '"b\\c')),
    ],
)
def test_an_idempotency_key_comes_bare_or_quoted(header: str, key: str) -> None:
    assert idempotency.parse(header) == key


def test_an_idempotency_key_may_have_255_characters() -> None:
    assert idempotency.parse("k" * 255) == "k" * 255


@pytest.mark.parametrize(
    "header",
    [
        "",
        '""',
        "k" * 256,
        f'"{"k" * 256}"',
        "a b",
        '"a b"',
        "a,b",
        '"a","b"',
        '"a";p=1',
        '"a',
        'a"b',
        "ü",
        "a\x7f",
    ],
)
def test_a_malformed_or_repeated_key_is_refused(header: str) -> None:
    with pytest.raises(InvalidIdempotencyKey):
        idempotency.parse(header)


def test_two_key_headers_are_refused_and_none_is_made_up_for() -> None:
    with pytest.raises(InvalidIdempotencyKey):
        idempotency.key_of(Headers([("Idempotency-Key", "a"), ("Idempotency-Key", "a")]))
    key, is_ours = idempotency.key_of(Headers())
    assert is_ours
    assert idempotency.parse(key) == key != idempotency.key_of(Headers())[0]


@pytest.mark.parametrize(
    ("text", "exact", "canonical"),
    [
        ("Ada+Tag@Example.COM", "Ada+Tag@example.com", "ada+tag@example.com"),
        ("ada@bücher.example", "ada@xn--bcher-kva.example", "ada@xn--bcher-kva.example"),
        ("o'neil@sub.test", "o'neil@sub.test", "o'neil@sub.test"),
    ],
)
def test_an_address_is_mailed_as_written_and_compared_folded(text: str, exact: str, canonical: str) -> None:
    assert addresses.check(text, allow_reserved=True) == addresses.Address(exact, canonical)


@pytest.mark.parametrize(
    "text",
    [
        "ada",
        "@example.com",
        "ada@",
        "ada@@example.com",
        "ada@example..com",
        "Ada <ada@example.com>",
        '"a b"@example.com',
        "ada@[127.0.0.1]",
        "ada@example.com\r\nBcc: eve@example.com",
        "ada@exa mple.com",
        "ada@-x.example",
        "a" * 65 + "@example.com",
    ],
)
def test_what_cannot_be_mailed_to_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        addresses.check(text, allow_reserved=True)
    (error,) = refused.value.errors
    assert (error.pointer, error.code) == ("/email", "invalid_address")
    assert text not in error.detail


@pytest.mark.parametrize(
    "domain",
    ["example.com", "a.example.org", "x.test", "localhost", "a.localhost", "b.invalid", "printer.local"],
)
def test_reserved_domains_are_refused_unless_allowed(domain: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        addresses.check(f"ada@{domain}", allow_reserved=False)
    assert refused.value.errors[0].code == "reserved_domain"
    assert addresses.check(f"ada@{domain}", allow_reserved=True).exact == f"ada@{domain}"


ALLOWED = ("https://host.example/done", "https://open.example", "http://127.0.0.1:8000/back/")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://host.example/done", True),
        ("https://HOST.example:443/done?x=1", True),
        ("https://host.example/done/more", True),
        ("https://open.example", True),
        ("https://open.example/anything", True),
        ("http://127.0.0.1:8000/back/x", True),
        ("https://host.example/donee", False),
        ("https://host.example/other", False),
        ("http://host.example/done", False),
        ("https://host.example:8443/done", False),
        ("https://host.example.evil.example/done", False),
        ("https://host.example@evil.example/done", False),
        ("https://evil.example\\@host.example/done", False),
        ("https://host.example/done/../admin", False),
        ("https://host.example/done/%2E%2e/admin", False),
        ("https://host.example:99999/done", False),
        ("javascript:alert(1)", False),
        ("https:///done", False),
    ],
)
def test_a_return_url_stays_below_what_the_client_lists(url: str, allowed: bool) -> None:
    assert return_urls.is_allowed(url, ALLOWED) is allowed


def test_the_verification_is_added_to_a_return_url_once() -> None:
    url = return_urls.with_verification("https://host.example/done?a=1&verification_id=old#top", "ver_1")
    assert url == "https://host.example/done?a=1&verification_id=ver_1#top"


@pytest.mark.parametrize("given", ["abc-123", "0d3f7c1e-6a0e-4d6a-9a34-1f6f2f0f0c11", "A" * 128])
def test_a_well_formed_request_id_is_kept(given: str) -> None:
    assert request_id(given) == given


@pytest.mark.parametrize(
    "given",
    [None, "", "a b", "a\nb", "-a", "x" * 129, "ü", "ada@example.com", "ABCD-EFGH-JKMN-PQRS", "<script>"],
)
def test_any_other_request_id_is_replaced(given: str | None) -> None:
    made = request_id(given)
    assert made != given
    assert made.startswith("req_")
