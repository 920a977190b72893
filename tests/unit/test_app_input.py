"""What the API makes of what it is sent: JSON, keys, request ids."""

from __future__ import annotations

import pytest
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from app import idempotency, strict_json
from app.errors import InvalidIdempotencyKey, InvalidRequest, MalformedJson, UnsupportedMediaType
from app.request_log import request_id
from app.schemas import field_errors


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
        b'{"a":1e-999}',
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
        (b'{"a":{"b":1e308}}', "/a/b", "number_too_large"),
        (b'{"a":[-1.5e19]}', "/a/0", "number_too_large"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "/a" + "/0" * 8, "too_deep"),
    ],
)
def test_json_that_nothing_behind_could_hold_is_refused_where_it_stands(
    body: bytes, pointer: str, code: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        strict_json.read(request(body))
    assert [(error.pointer, error.code) for error in refused.value.errors] == [(pointer, code)]


def test_a_number_is_read_as_the_database_gives_it_back() -> None:
    read = strict_json.parse(b"[1, 1.0, 1.5, 1e3, 1e15, 1e16, -9.2e18, 0.1, 1e-300, 0e5, -0.0]")
    assert read == [1, 1.0, 1.5, 1000.0, 1e15, 10**16, -92 * 10**17, 0.1, 1e-300, 0, 0]
    assert [type(number) for number in read[4:7]] == [float, int, int]


@pytest.mark.parametrize(
    ("key", "step"),
    [
        ("a/b~c", "a~1b~0c"),
        ("ada@example.com", "***@example.com"),
        ("K7Q2-9MXT-4RBD-8WZE", "****"),
        ("cs_live_64vspnk2yp_ts4amc2cmxhc5yiuzi5m47erpuqxjkj4", "cs_live_64vspnk2yp_***"),
        ("cs_test_64vspnk2yp_ts4amc2cmxhc5yiuzi5m47erpuqxjkj4", "cs_test_64vspnk2yp_***"),
        ("x" * 60 + " K7Q2-9MXT-4RBD-8WZE", "x" * 60 + " ***"),
        ("x" * 10_000, "x" * 64),
    ],
)
def test_a_name_goes_back_masked_and_short(key: str, step: str) -> None:
    assert strict_json.escape(key) == step


def test_of_thousands_of_wrong_fields_some_are_named() -> None:
    refused = InvalidRequest(field_errors({f"x{number}": ["no"] for number in range(3000)}))
    assert len(refused.errors) == 50


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


@pytest.mark.parametrize("key", ["abc", "a,b", 'a"b', "a\\b", '"', "\\", ",", '"\\",', "k" * 255, '"' * 255])
def test_a_key_is_written_as_it_can_be_read_again(key: str) -> None:
    assert idempotency.parse(idempotency.written(key)) == key


def test_a_bare_key_is_written_bare() -> None:
    assert idempotency.written("abc-1") == "abc-1"


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
