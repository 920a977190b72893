"""The search for values that must not be seen can find them, however they are written."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from tests.support.canaries import Canary, Haystack, found, word

TOKEN = "9WFX-T3C9-RKH3-A2MZ"
BARE = TOKEN.replace("-", "")
NAME = "ada.lovelace+mail@host.example"

SPELLINGS = {
    "as it is": TOKEN,
    "lower case": TOKEN.lower(),
    "bare": BARE,
    "with spaces": TOKEN.replace("-", " "),
    "letter by letter": ".".join(BARE),
    "percent-encoded": quote(TOKEN).replace("-", "%2D"),
    "percent-encoded twice": TOKEN.replace("-", "%252D"),
    "all percent-encoded": "".join(f"%{ord(letter):02X}" for letter in TOKEN),
    "JSON escapes": "".join(f"\\u{ord(letter):04x}" for letter in TOKEN),
    "Python escapes": "".join(f"\\x{ord(letter):02x}" for letter in TOKEN),
    "HTML numbers": "".join(f"&#x{ord(letter):x};" for letter in TOKEN),
    "hex": TOKEN.encode().hex(),
    "hex behind a digit": f"f{BARE.encode().hex()}",
    "base64": base64.b64encode(TOKEN.encode()).decode(),
    "base64 in a longer text": base64.b64encode(f"xx{BARE.lower()} and more".encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(f"x{TOKEN}".encode()).decode(),
    "assigned": f"token={BARE}",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_token_is_found_in_every_spelling(spelling: str) -> None:
    canary = Canary("the token", TOKEN)
    assert canary.is_in(Haystack(f'{{"a": 1}} before {SPELLINGS[spelling]} after'.encode()))
    assert canary.is_in(Haystack(f"before {SPELLINGS[spelling]} after".encode("utf-16")))


@pytest.mark.parametrize(
    "written", [NAME, NAME.upper(), quote(NAME, safe=""), json.dumps(NAME), repr(NAME.encode())]
)
def test_an_address_is_found(written: str) -> None:
    assert Canary("the address", NAME).is_in(Haystack(f"to={written};".encode()))


def test_what_is_not_there_is_not_found() -> None:
    source = Haystack(b"9WFX-T3C9-RKH3-A2M and ***@host.example " + bytes(range(256)))
    assert found([Canary("the token", TOKEN), Canary("the address", NAME)], {"log": source}) == []


def test_a_finding_names_value_and_source_and_shows_neither() -> None:
    canary = Canary("the token", TOKEN)
    (finding,) = found([canary], {"one": Haystack(b"clean"), "two": Haystack(TOKEN.encode())})
    assert finding == "the token in two"
    assert TOKEN not in repr(canary)


def test_a_value_too_short_to_be_told_from_chance_is_refused() -> None:
    with pytest.raises(AssertionError):
        Canary("a word", "short")
    assert word("ada") != word("ada")
