"""Tokens: derived, bound to the address, and forgiving to people."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from db import tokens
from db.errors import UnknownTokenKey

KEYS = {"k1": b"1" * 32, "k2": b"2" * 32}
ID = UUID(int=7)
NONCE = b"n" * 16
EMAIL = "ada@example.com"


def token(**changes: object) -> str:
    values = {"keys": KEYS, "key_id": "k1", "verification_id": ID, "email": EMAIL, "nonce": NONCE, **changes}
    return tokens.derive(**values)  # type: ignore[arg-type]


def test_a_token_is_16_characters_of_crockford_and_always_the_same() -> None:
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{16}", token())
    assert token() == token()


@pytest.mark.parametrize(
    "change",
    [
        {"key_id": "k2"},
        {"verification_id": UUID(int=8)},
        {"email": "Ada@example.com"},
        {"nonce": b"m" * 16},
        {"keys": {"k1": b"3" * 32}},
    ],
)
def test_a_token_is_bound_to_key_verification_exact_address_and_nonce(change: dict[str, object]) -> None:
    assert token(**change) != token()


def test_bytes_cannot_move_between_the_parts_of_its_input() -> None:
    assert token(email="ada@example.comn", nonce=b"n" * 15) != token()


def test_an_unknown_key_is_named_not_guessed() -> None:
    with pytest.raises(UnknownTokenKey, match="k9"):
        token(key_id="k9")


def test_groups_of_four_are_for_people() -> None:
    assert tokens.grouped("ABCDEFGHJKMNPQRS") == "ABCD-EFGH-JKMN-PQRS"


@pytest.mark.parametrize(
    "typed",
    [
        "AB01-1FGH-JKMN-PQRS",
        "ab01 1fgh jkmn pqrs",
        " ab011fghjkmnpqrs\r\n",
        "ABOI-LFGH-JKMN-PQRS",
        "aboi\u2013lfgh\u2014jkmn\u2010pqrs",
        "ab01\u00a01fgh\u200bjkmn\u00adpqrs",
    ],
)
def test_case_spacing_and_look_alikes_are_forgiven(typed: str) -> None:
    assert tokens.normalise(typed) == "AB011FGHJKMNPQRS"


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "ABCD",
        "ABCDEFGHJKMNPQRSA",
        "ABCDEFGHJKMNPQRU",
        "ABCDEFGHJKMNPQR\u0131",
        "\x00" * 16,
        "Ä" * 16,
        "A" * 5000,
    ],
)
def test_what_is_no_token_is_none(typed: str) -> None:
    assert tokens.normalise(typed) is None


def test_a_fingerprint_needs_its_key_and_differs_from_any_token_input() -> None:
    one = tokens.fingerprint(KEYS, "k1", b"{}")
    assert one == tokens.fingerprint(KEYS, "k1", b"{}") != tokens.fingerprint(KEYS, "k2", b"{}")
    assert one != tokens.fingerprint(KEYS, "k1", b"{ }")
