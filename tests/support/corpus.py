"""Hostile input, by kind: bodies, texts, headers, paths, query strings. `CANARY` stands for what must never be echoed."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

CANARY = "zqxjkvbp"  # in no word of ours

_C = CANARY.encode()

# No strict JSON: 400 `malformed_json`, whatever the call wants.
NOT_JSON: Mapping[str, bytes] = MappingProxyType(
    {
        "nothing": b"",
        "white space": b" \r\n\t",
        "half an object": b'{"%b":' % _C,
        "a word": _C,
        "single quotes": b"{'%b': 1}" % _C,
        "a comment": b'{"a": 1} // %b' % _C,
        "a trailing comma": b'{"%b": 1,}' % _C,
        "two documents": b'{"a": "%b"} {}' % _C,
        "a duplicate key": b'{"%b": 1, "%b": 2}' % (_C, _C),
        "a nested duplicate key": b'{"a": [{"%b": 1, "%b": 2}]}' % (_C, _C),
        "a duplicate key in another spelling": rb'{"a": "%b", "\u0061": 1}' % _C,
        "a duplicate key in a nested other spelling": rb'{"x": {"a\/": "%b", "a/": 1}}' % _C,
        "NaN": b'{"%b": NaN}' % _C,
        "Infinity": b'{"%b": Infinity}' % _C,
        "-Infinity": b'{"%b": [-Infinity]}' % _C,
        "1e999": b'{"%b": 1e999}' % _C,
        "-1e999": b'{"%b": -1E+999}' % _C,
        "1e-999": b'{"%b": 1e-999}' % _C,
        "a huge exponent": b'{"%b": 1e99999999999999999999}' % _C,
        "an integer of 10000 digits": b'{"%b": %b}' % (_C, b"9" * 10_000),
        "a leading zero": b'{"%b": 01}' % _C,
        "a leading plus": b'{"%b": +1}' % _C,
        "hex": b'{"%b": 0x10}' % _C,
        "a bare point": b'{"%b": 1.}' % _C,
        "digits of another script": '{"a": \u0661}'.encode(),
        "a line feed in a string": b'{"a": "%b\n"}' % _C,
        "a NUL in a string": b'{"a": "%b\0"}' % _C,
        "a NUL behind it": b'{"a": "%b"}\0' % _C,
        "a bad escape": rb'{"a": "\x41%b"}' % _C,
        "half an escape": rb'{"a": "\u00"}',
        "a BOM": b'\xef\xbb\xbf{"%b": 1}' % _C,
        "no UTF-8": b'{"%b": "\xff"}' % _C,
        "an overlong slash": b'{"%b": "\xc0\xaf"}' % _C,
        "a raw surrogate": b'{"%b": "\xed\xa0\x80"}' % _C,
        "CESU-8": b'{"%b": "\xed\xa0\xbd\xed\xb8\x80"}' % _C,
        "beyond Unicode": b'{"%b": "\xf4\x90\x80\x80"}' % _C,
        "half a character": b'{"%b": "\xe2\x82' % _C,
        "UTF-16": f'{{"{CANARY}": 1}}'.encode("utf-16"),
        "UTF-32": f'{{"{CANARY}": 1}}'.encode("utf-32-be"),
        "gzip": gzip.compress(b'{"%b": 1}' % _C, mtime=0),
        "a form": b"token=%b" % _C,
        "XML": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
        "8000 open brackets": b"[" * 8000,
        "2000 open objects": b'{"a":' * 2000,
        "5000 minus signs": b"-" * 5000,
    }
)

# JSON, but no object.
NO_OBJECT = (
    b"null",
    b"true",
    b"0",
    b"-0.0",
    b'"%b"' % _C,
    b"[]",
    b'["%b"]' % _C,
    b"[{}]",
    b"1e2",
    b"[[[[1]]]]",
)

# JSON that nothing could keep: 422, naming the place. `%b` is the field.
UNFIT: Mapping[str, tuple[bytes, str, str]] = MappingProxyType(
    {
        "an escaped NUL": (rb'"%b\u0000"' % _C, "", "invalid_characters"),
        "a lone high surrogate": (rb'"%b\ud83d"' % _C, "", "invalid_characters"),
        "a lone low surrogate": (rb'"\ude00%b"' % _C, "", "invalid_characters"),
        "surrogates the wrong way round": (rb'"\ude00\ud83d"', "", "invalid_characters"),
        "a NUL in a key": (rb'{"%b\u0000": 1}' % _C, "", "invalid_characters"),
        "a surrogate deep inside": (rb'{"a": [[{"b": "\udfff%b"}]]}' % _C, "/a/0/0/b", "invalid_characters"),
        "2**63": (b"9223372036854775808", "", "number_too_large"),
        "-2**63-1": (b"-9223372036854775809", "", "number_too_large"),
        "10**4000": (b"1" + b"0" * 4000, "", "number_too_large"),
        "1e300": (b"1e300", "", "number_too_large"),
        "a hundred arrays": (b"[" * 100 + b"]" * 100, "/0" * 8, "too_deep"),
        "a hundred objects": (b'{"a":' * 100 + b"1" + b"}" * 100, "/a" * 8, "too_deep"),
    }
)

# What nobody sees, what turns text around, what means something else to everybody.
UNSEEN: Mapping[str, str] = MappingProxyType(
    {
        **{f"control U+{code:04X}": chr(code) for code in (*range(1, 0x20), 0x7F, 0x80, 0x85, 0x9F)},
        **{f"line end U+{code:04X}": chr(code) for code in (0x2028, 0x2029)},
        **{
            f"zero width U+{code:04X}": chr(code)
            for code in (*range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF)
        },
        **{
            f"invisible U+{code:04X}": chr(code)
            for code in (0xAD, 0x34F, 0x180E, 0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800)
        },
        **{
            f"bidi U+{code:04X}": chr(code)
            for code in (0x61C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
        },
        **{f"selector U+{code:04X}": chr(code) for code in (0xFE00, 0xFE0F, 0xE0100, 0xE01EF, 0x180B)},
        **{f"tag U+{code:04X}": chr(code) for code in (0xE0001, 0xE0041, 0xE007F)},
        **{f"private U+{code:04X}": chr(code) for code in (0xE000, 0xF8FF, 0xF0000, 0x10FFFD)},
        **{
            f"noncharacter U+{code:04X}": chr(code)
            for code in (0xFDD0, 0xFFFE, 0xFFFF, 0x1FFFE, 0x5FFFF, 0x10FFFF)
        },
        **{f"annotation U+{code:04X}": chr(code) for code in (0xFFF9, 0xFFFB)},
    }
)

# Odd, and still text that somebody may mean.
ODD_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "combining marks": "a" + "\u0301" * 200,
        "emoji": "\U0001f600",
        "right-to-left letters": "\u05d0\u0628",
        "not assigned yet": "\u0378\U0001faff",
        "HTML": "<script>alert(1)</script>",
        "SQL": "'; DROP TABLE accounts; --",
        "format strings": "%s%n{0}{self.__class__}${jndi:ldap://x.example}",
        "a path": "../../etc/passwd",
        "quotes": "\"'`\\",
        "no-break space": "a\u00a0b",
    }
)

# For any field: another type. What a field takes is left out where it is used.
WRONG_TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "null": None,
        "true": True,
        "false": False,
        "zero": 0,
        "a number": 1,
        "a fraction": 1.5,
        "a list": [CANARY],
        "an empty list": [],
        "an object": {CANARY: CANARY},
        "an empty object": {},
        "nested": [[{"a": [CANARY]}]],
    }
)

CONTENT_TYPES = (
    *("", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    *(
        "application/jsonp",
        "application/json2",
        "application/vnd.api+json",
        "application",
        "application/",
        "/json",
    ),
    *("json", "*/*", "application/json/json", "application/json, text/plain", "text/plain, application/json"),
    *(
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/json; charset=utf-7",
    ),
    *(
        "application/json; charset=idna",
        "application/json; charset=rot13",
        f"application/json; charset={CANARY}",
    ),
    "application/json;charset=utf-8;charset=latin-1",
    *("application/json; charset*=utf-16''x", f"{CANARY}/{CANARY}", "application/" + "x" * 4000),
)
GOOD_CONTENT_TYPES = (
    *("application/json", "APPLICATION/JSON", "application/json;", " application/json ; q=1"),
    *(
        "application/json; charset=utf-8",
        'application/json; charset="UTF-8"',
        "application/json; version=1",
        "application/json; charset=",
    ),
)
ENCODINGS = ("gzip", "deflate", "br", "zstd", "gzip, identity", "identity, gzip", CANARY, "utf-8", "GZIP")

IDEMPOTENCY_KEYS = (
    *("", " ", '""', "a b", '"a b"', "a,b", '"a","b"', '"a', 'a"', "k" * 256, f'"{"k" * 256}"', '"a";q=1'),
    *(
        '"\\"',
        '"\\x"',
        "\x7f",
        "a\tb",
        "k\xe9y",
        "\xff",
        "\xe2\x80\x8b",
        "k" * 8000,
        "{a b}",
        '("a")',
    ),
)
REQUEST_IDS = (
    *(
        "",
        " ",
        "-",
        "a b",
        "a\tb",
        "x" * 129,
        "x" * 8000,
        "\xff",
        "\xe2\x80\x8b",
        "<script>",
        "a,b",
        '"a"',
        "${x}",
    ),
    *("../x", "a/b", "a%0d%0ab", CANARY * 20, f"{CANARY}@example.com", "ABCD-EFGH-JKMN-PQRS"),
)
AUTHORIZATIONS = (
    *("", "Bearer", "Bearer ", "bearer  ", "Basic eDp5", f"Basic {CANARY}", CANARY, "Bearer " + "x" * 8000),
    *(
        "Bearer \xff",
        "Bearer \xe2\x80\x8b",
        "Bearer cs_live_",
        "Bearer cs_live_aaaaaaaaaa_",
        "Bearer cs_live__x",
    ),
    *(
        "Bearer cs_live_aaaaaaaaaa_" + "a" * 32,
        "Bearer cs_live_%00_x",
        "Bearer cs_live_' OR 1=1 --_x",
        "Digest a=b",
    ),
    *(
        "Bearer cs_test_aaaaaaaaaa_" + "a" * 32,
        "Bearer a, Bearer b",
        "Bearer\tx",
        "Bearer " + "_" * 100,
        "Bearer null",
    ),
)
QUERIES = (
    *(
        "%",
        "%zz",
        "%00",
        "a=%00",
        "%ff=%ff",
        "a=%ed%a0%80",
        "a=%c0%af",
        "&&&&",
        "====",
        "a=1&a=2",
        "limit=%00",
    ),
    *(
        "limit=1&limit=2",
        "limit=",
        "limit=-1",
        "limit=0",
        "limit=1e9",
        "limit=NaN",
        "limit=99999999999999999999",
    ),
    *(
        "limit=1.5",
        "limit=0x10",
        "limit=%D9%A1",
        "limit=true",
        "limit=+1",
        "limit=1_0",
        "cursor=",
        "cursor=%00",
    ),
    *(
        f"cursor={CANARY}",
        "cursor=" + "A" * 4000,
        "cursor=BA" + "A" * 30,
        "cursor=BP" + "_" * 30,
        "cursor=ZZZZ",
    ),
    *(
        "after=",
        "after=-1",
        "after=1e3",
        "after=99999999999999999999",
        "after=9223372036854775807",
        "after=%00",
    ),
    *(f"after={CANARY}", "verification_status=", f"verification_status={CANARY}", "delivery_status=%00"),
    *("account_id=", "account_id=%00", "account_id=%ff", "account_id=%E2%80%8B", "account_id=" + "x" * 3000),
    *(
        "consumed_since=",
        "consumed_since=now",
        "consumed_since=0000-00-00T00:00:00Z",
        "consumed_since=infinity",
    ),
    *(
        "consumed_since=9999-12-31T23:59:59Z",
        "consumed_since=0001-01-01T00:00:00-23:59",
        "consumed_since=2026-01-01",
    ),
    *(
        f"name={CANARY}",
        "a[]=1",
        "a[b]=1",
        "a.b=1",
        "&".join(f"a{n}=1" for n in range(300)),
        "%26=%3D",
        ";a=1;b=2",
    ),
)
# Behind a rule's fixed part, or instead of an id. Percent-encoded as it goes over the wire.
PATHS = (
    *(
        "%00",
        "%0d%0aX:%20y",
        "%2e%2e",
        "%2e%2e%2f%2e%2e",
        "..",
        "../..",
        "%2f",
        "%252f",
        "%c0%ae%c0%ae",
        "%ed%a0%80",
    ),
    *(
        "%ff",
        "%e2%80%8b",
        ";a=b",
        "%3b",
        "%23",
        "%3f",
        "*",
        "'",
        "%22",
        "%5c",
        "\\",
        "%7f",
        "%20",
        "+",
        "%zz",
        "%",
        "~",
    ),
    *(
        "ver_",
        "ver_0",
        "ver_" + "g" * 32,
        "ver_" + "0" * 33,
        "VER_" + "0" * 32,
        "ver_" + "F" * 32,
        "dlv_" + "0" * 32,
    ),
    *(
        "ver_" + "0" * 32 + "%00",
        "ver_" + "0" * 32 + "%0a",
        "ver_%D9%A0" + "0" * 31,
        "ver_" + "0" * 32,
        CANARY,
        "x" * 3500,
    ),
)
