"""`/verify`: where the mail's link leads. A person presses a button; GET and HEAD change nothing.

It works without JavaScript; with it, a script of our own copies the code from the link's fragment into the field. Nothing
of a third party is loaded and no address of ours ever carries a token. What it does and why: docs/verify-page.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from flask import Blueprint, Response, g, render_template, request

from app import errors, page_headers, return_urls, token_tries
from app.errors import FieldError, InvalidRequest
from app.page_words import WORDS, Case, choose
from app.services import services
from db import consumption, tokens
from db.errors import DatabaseUnavailable, TokenAlreadyUsed, TokenExpired, TokenInvalid
from db.ids import public

blueprint = Blueprint("pages", __name__)

_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "verify.css").read_text(encoding="utf-8").strip()
_SCRIPT = (_FOLDER / "verify.js").read_text(encoding="utf-8").strip()
_LONGEST_TYPED = 64  # the field's maxlength

_HEADERS = MappingProxyType(
    {
        **page_headers.for_page(style=_STYLE, script=_SCRIPT, form_action="'self'"),
        "X-Robots-Tag": "noindex, nofollow",
        "Vary": "Accept-Language",
    }
)

# Already confirmed is good news: it is what a second click, a reload or another browser gets.
_GOOD = frozenset({Case.CONFIRMED, Case.USED, Case.REVOKED, Case.OVER_REVOKE})
# Where a code can still be typed, or the same one tried again.
_WITH_FORM = frozenset(
    {
        *(Case.ASK, Case.NEWER, Case.NEWER_REVOKE, Case.INVALID, Case.UNREADABLE),
        *(Case.RATE_LIMITED, Case.UNAVAILABLE, Case.BROKEN),
    }
)
_MARKS: Mapping[str, str] = MappingProxyType(
    {
        "ask": "M3 6h18v12H3zM3.5 6.5 12 13l8.5-6.5",  # an envelope
        "good": "m5 12.5 4.5 4.5L19 7.5",  # a tick
        "bad": "M12 5v9M12 18.5v.1",  # an exclamation mark
    }
)
_ENDED: Mapping[str, Case] = MappingProxyType(
    {"expired": Case.EXPIRED, "superseded": Case.SUPERSEDED, "cancelled": Case.CANCELLED}
)
# Whoever did not ask for the mail needs another advice.
_WHEN_REVOKING: Mapping[Case, Case] = MappingProxyType(
    {
        Case.USED: Case.USED_REVOKE,
        Case.NEWER: Case.NEWER_REVOKE,
        Case.EXPIRED: Case.OVER_REVOKE,
        Case.SUPERSEDED: Case.OVER_REVOKE,
    }
)


@blueprint.get("/verify")
def ask() -> Response:
    """The form. Looking at it changes nothing."""
    return _page(Case.ASK)


@blueprint.post("/verify")
def answer() -> Response:
    """Confirm or revoke, as the pressed button says. Raises what the handler below turns into a page."""
    g.typed = _only("token")
    g.action = _only("action")
    act = _ACTIONS.get(g.action)
    if act is None:
        raise _unreadable("action")
    token = tokens.normalise(g.typed)
    if token is None:
        raise TokenInvalid
    with token_tries.limited():
        return act(token)


def _only(field: str) -> str:
    """The form's one value of that name. Raises InvalidRequest: of none or several, which does the person mean?"""
    values = request.form.getlist(field)
    if len(values) != 1:
        raise _unreadable(field)
    return values[0]


def _unreadable(field: str) -> InvalidRequest:
    return InvalidRequest([FieldError(f"/{field}", "invalid", "Send the form as the page does.")])


def _revoke(token: str) -> Response:
    revoked = consumption.revoke(services().database, token)
    return _page(Case.REVOKED, locale=revoked.locale)


def _confirm(token: str) -> Response:
    consumed = consumption.consume(services().database, token)
    return _page(
        Case.CONFIRMED,
        locale=consumed.locale,
        onward=_onward(consumed.return_url, consumed.verification_id),
        address=consumed.email_masked,
    )


# What the buttons do. Nothing else does anything: a form that was cut off must not confirm what it was to revoke.
_ACTIONS: Mapping[str, Callable[[str], Response]] = MappingProxyType({"confirm": _confirm, "revoke": _revoke})


@blueprint.errorhandler(Exception)
def refuse(error: Exception) -> Response:
    """What went wrong, in words for the person who pressed the button; whatever it is, it becomes a page."""
    problem = errors.problem_of(error)
    if errors.is_unexpected(problem):
        errors.log_unexpected(error)
    case = _case_of(error, problem.status)
    if g.get("action") == "revoke":
        case = _WHEN_REVOKING.get(case, case)
    page = _page(
        case,
        status=problem.status,
        locale=getattr(error, "locale", None),
        onward=_onward_of(error) if case is Case.USED else None,
        minutes=_minutes(problem.headers.get("Retry-After")),
    )
    page.headers.extend(problem.headers)
    return page


def _case_of(error: Exception, status: int) -> Case:
    match error:
        case TokenAlreadyUsed():
            return Case.USED
        case TokenExpired(newer_exists=True):
            return Case.NEWER
        case TokenExpired():
            return _ENDED[error.reason]
        case TokenInvalid():
            return Case.INVALID
        case DatabaseUnavailable():
            return Case.UNAVAILABLE
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Case.RATE_LIMITED
    return Case.BROKEN if status >= 500 else Case.UNREADABLE


def _onward_of(error: Exception) -> str | None:
    """A second click must not lose the way back. Only who holds the token gets here, and could have confirmed with it."""
    return _onward(error.return_url, error.verification_id) if isinstance(error, TokenAlreadyUsed) else None


def _onward(return_url: str | None, verification_id: UUID) -> str | None:
    return return_url and return_urls.with_verification(return_url, public("ver", verification_id))


def _minutes(retry_after: str | None) -> int:
    """Seconds as whole minutes, at least one."""
    return max(1, -(-int(retry_after or 60) // 60))


def _page(
    case: Case,
    *,
    status: int = 200,
    locale: str | None = None,
    onward: str | None = None,
    address: str = "",
    minutes: int = 1,
) -> Response:
    """The page in the request's language if it is known by now (`locale`), else in the browser's."""
    language = choose(locale, request.accept_languages)
    words = WORDS[language]
    message = words.messages[case]
    tone = "ask" if case is Case.ASK else "good" if case in _GOOD else "bad"
    text = render_template(
        "verify.html",
        language=language,
        words=words,
        title=message.title,
        paragraphs=[
            paragraph.format(address=address, minutes=minutes, revoke=words.revoke)
            for paragraph in message.paragraphs
        ],
        tone=tone,
        mark=_MARKS[tone],
        form=case in _WITH_FORM,
        invalid=case is Case.INVALID,
        typed=_typed(case),
        onward=onward,
        style=_STYLE,
        script=_SCRIPT,
    )
    headers = {**_HEADERS, "Content-Language": language}
    return Response(text, status=status, mimetype="text/html", headers=headers)


def _typed(case: Case) -> str:
    """What goes back into the field: 16 characters are a lot to type again for one that was wrong.

    Not a code that never works again, and nothing that the field would not have taken.
    """
    typed: str = g.get("typed", "")
    return typed if case not in {Case.NEWER, Case.NEWER_REVOKE} and len(typed) <= _LONGEST_TYPED else ""
