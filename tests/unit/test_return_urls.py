"""Where the page may send people back to, and how the address looks then."""

from __future__ import annotations

import pytest

from app import return_urls

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
        ("https://host.example/done/..%2fadmin", False),
        ("https://host.example/done/..%5Cadmin", False),
        ("https://host.example/done/..;/admin", False),
        ("https://host.example/done/..%23/x", False),
        ("https://host.example/done/..%3f/x", False),
        ("https://host.example/done/..%20/x", False),
        ("https://host.example/done/%2e%2e;a/x", False),
        ("https://host.example/done/%252e%252e/admin", False),
        ("https://host.example/done/a%252fb", False),
        ("https://host.example/done/..%c0%afadmin", False),
        ("https://host.example/done/a%00b", False),
        ("https://host.example/done/a%0d%0ab", False),
        ("https://host.example\t/done", False),
        ("https://host.example/done\n", False),
        ("https://host.example:0/done", False),
        ("https://host.example/done/stra%C3%9Fe%20x", True),
        ("https://host.example/done/50%25/..a/b;c", True),
        ("https://host.example:99999/done", False),
        ("javascript:alert(1)", False),
        ("https:///done", False),
    ],
)
def test_a_return_url_stays_below_what_the_client_lists(url: str, allowed: bool) -> None:
    assert return_urls.is_allowed(url, ALLOWED) is allowed


@pytest.mark.parametrize(
    ("url", "onward"),
    [
        ("https://host.example/done", "https://host.example/done?verification_id=ver_1"),
        ("https://host.example/done?", "https://host.example/done?verification_id=ver_1"),
        ("https://host.example/done?a=1#top", "https://host.example/done?a=1&verification_id=ver_1#top"),
        ("https://host.example#?x", "https://host.example?verification_id=ver_1#?x"),
        (
            "https://host.example/done?a=1&verification_id=old&sig=x#top",
            "https://host.example/done?a=1&verification_id=ver_1&sig=x#top",
        ),
        ("https://host.example/?verification%5Fid", "https://host.example/?verification_id=ver_1"),
        (
            "https://host.example/?my_verification_id=2",
            "https://host.example/?my_verification_id=2&verification_id=ver_1",
        ),
    ],
)
def test_the_verification_is_added_once(url: str, onward: str) -> None:
    assert return_urls.with_verification(url, "ver_1") == onward


@pytest.mark.parametrize(
    "query",
    ["sig=a%2fb%2Fc+d%20e", "a&b=&&c", "sig=a==&x=%C3%BC", "u=a:b/c?d@e", "a;b=1", "%7Etilde=~", "x=%zz"],
)
def test_a_query_that_the_host_signed_keeps_every_byte(query: str) -> None:
    url = f"HTTPS://Host.Example:443/Done?{query}"
    assert return_urls.with_verification(url, "ver_1") == f"{url}&verification_id=ver_1"
