"""Every failure says what to do (G8)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from db import advice
from db.delivery_state import FailureCategory

ROOT = Path(__file__).parents[2]
# The functions and classes whose first word-like argument is an error code.
MAKERS = {
    "away",
    "config",
    "transient",
    "permanent",
    "unknown",
    "verdict",
    "Unsuitable",
    "Result",
    "AttemptResult",
    "NothingMaySend",
    "_failed",
}
CARRIERS = {"failure_code", "error_code", "last_error"}
NO_FAILURES = {"accepted", "lookup_found", "lookup_not_found"}


def codes(folder: str) -> Iterator[str]:
    """Every error code that code below `folder` produces."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in MAKERS:
                arguments = [
                    *node.args,
                    *(keyword.value for keyword in node.keywords if keyword.arg in {"code", "error_code"}),
                ]
                yield from (text for argument in arguments for text in _words(argument))
            if (
                isinstance(node, ast.keyword)
                and node.arg in CARRIERS
                and isinstance(node.value, ast.Constant)
            ):
                yield from _words(node.value)


def codes_of_sql(folder: str) -> Iterator[str]:
    """The failure codes that queries write by themselves."""
    for path in sorted((ROOT / folder).rglob("*.sql")):
        yield from re.findall(r"failure_code = .*THEN '([a-z_]+)'", path.read_text())


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _words(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and part is not node:
            return
        if (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and part.value.replace("_", "").isalnum()
        ):
            yield part.value


def test_every_code_that_is_produced_has_words() -> None:
    produced = {code for folder in ("tasks", "db") for code in codes(folder)} - NO_FAILURES
    from_sql = set(codes_of_sql("db"))
    assert len(produced) > 30, "the search finds them"
    assert "smtp_timeout" in produced
    assert from_sql == {"suppressed"}
    assert (produced | from_sql) - set(advice.WORDS) == set()


@pytest.mark.parametrize("category", FailureCategory)
def test_an_unknown_code_falls_back_by_category(category: FailureCategory) -> None:
    assert advice.advise(category, "never_heard_of").endswith(".")


@pytest.mark.parametrize("code", sorted(advice.WORDS))
def test_cause_and_advice_are_sentences_for_people(code: str) -> None:
    words = advice.WORDS[code]
    for sentence in (words.cause, words.advice):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
    assert advice.advise(FailureCategory.INTERNAL, code) == f"{words.cause} {words.advice}"
    assert advice.mend(code) == advice.advise(FailureCategory.INTERNAL, code)


@pytest.mark.parametrize("code", sorted(advice.WORDS))
def test_a_cause_asks_nobody_to_do_anything(code: str) -> None:
    cause = advice.cause(code) or ""
    assert not re.search(r"(?i)\b(request a|ask|check|report|retry|raise|see)\b", cause)


def test_no_code_no_sentence() -> None:
    assert advice.cause(None) is None
    assert advice.cause("never_heard_of") is None
    assert advice.mend("never_heard_of") is None
