"""The words of `/verify`: complete in every language, and the same buttons that the mail speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from app.page_words import WORDS, Case, Language, Words, choose
from tasks.templates import v1


def everything(words: Words) -> Iterator[str]:
    yield from (words.label, words.hint, words.confirm, words.revoke, words.onward)
    for message in words.messages.values():
        yield message.title
        yield from message.paragraphs


def test_every_language_has_every_message() -> None:
    assert set(WORDS) == set(Language)
    for words in WORDS.values():
        assert set(words.messages) == set(Case)
        assert all(message.paragraphs for message in words.messages.values())


@pytest.mark.parametrize("language", Language)
def test_no_message_is_empty_or_untidy(language: Language) -> None:
    for text in everything(WORDS[language]):
        assert text == text.strip()
        assert len(text) > 3
        assert "  " not in text
    for message in WORDS[language].messages.values():
        assert all(paragraph.endswith(".") for paragraph in message.paragraphs)


def test_german_is_not_english() -> None:
    assert not set(everything(WORDS[Language.EN])) & set(everything(WORDS[Language.DE]))


@pytest.mark.parametrize("case", Case)
def test_a_message_fills_in_the_same_in_every_language(case: Case) -> None:
    fields = {
        tuple(sorted(re.findall(r"\{(\w+)\}", " ".join(words.messages[case].paragraphs))))
        for words in WORDS.values()
    }
    assert len(fields) == 1


@pytest.mark.parametrize("language", Language)
def test_the_mail_speaks_of_the_button_by_its_name(language: Language) -> None:
    assert set(v1.WORDS) == {str(each) for each in Language}
    assert WORDS[language].revoke in v1.WORDS[language]["not_you"]


def test_the_requests_language_comes_first_then_the_browsers_then_english() -> None:
    assert choose("de-AT", [("en", 1.0)]) == "de"
    assert choose("fr", [("de", 1.0)]) == "de"
    assert choose(None, [("fr", 1.0), ("de", 0.1)]) == "de"
    assert choose(None, [("de", 0.0)]) == "en"
    assert choose(None, []) == "en"
