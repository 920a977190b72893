"""`/verify`: where the mail's link leads. A person presses a button; GET and HEAD change nothing.

It works without JavaScript; with it, a script of our own copies the code from the link's fragment into the field. Nothing
of a third party is loaded and no address of ours ever carries a token.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from flask import Blueprint, Response, render_template, request

from app import errors, return_urls
from app.errors import FieldError, InvalidRequest
from app.services import services
from db import consumption, tokens
from db.errors import (
    DatabaseUnavailable,
    TokenAlreadyUsed,
    TokenExpired,
    TokenInvalid,
)
from db.ids import public

blueprint = Blueprint("pages", __name__)

_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "verify.css").read_text(encoding="utf-8").strip()
_SCRIPT = (_FOLDER / "verify.js").read_text(encoding="utf-8").strip()


def _source(content: str) -> str:
    """The Content-Security-Policy source that allows exactly this inline content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": (
            f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; form-action 'self'; "
            "base-uri 'none'; frame-ancestors 'none'"
        ),
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "X-Robots-Tag": "noindex, nofollow",
    }
)


@dataclass(frozen=True, slots=True)
class Message:
    """What the page says: what happened, and what to do. `form` offers to type a code."""

    title: str
    paragraphs: tuple[str, ...]
    good: bool = False
    form: bool = False


_ASK = Message(
    "Confirm your email address",
    ("Press the button to confirm. If the field is empty, type the code from the mail.",),
    good=True,
    form=True,
)
_CONFIRMED = Message("Your address is confirmed", ("Thank you. You can close this page.",), good=True)
_REVOKED = Message(
    "This request was cancelled",
    (
        "The link and the code in that mail no longer work, and nothing was confirmed.",
        "You need not do anything else.",
    ),
    good=True,
)
_USED = Message(
    "This was confirmed before",
    ("The address is confirmed and the code cannot be used again. There is nothing left to do.",),
)
_NOT_FOUND = Message(
    "This code is not valid",
    ("Check it against the mail, or open the link in the mail once more. Nothing was changed.",),
    form=True,
)
_UNREADABLE = Message(
    "This could not be read",
    (
        "What your browser sent did not arrive whole, or not as this page sends it. Nothing was changed.",
        "Type the code from the mail, then press one of the buttons.",
    ),
    form=True,
)
_UNAVAILABLE = Message(
    "This is not possible right now",
    ("Your code is still good. Wait a minute, then try again.",),
    form=True,
)
_BROKEN = Message(
    "Something went wrong here",
    ("It has been recorded. Your code was not harmed: try again in a minute.",),
    form=True,
)
_NEWER = Message(
    "There is a newer mail",
    (
        "Another mail was sent after this one, and only the newest works.",
        "Look for it (in the spam folder too) and use its link.",
    ),
    form=True,
)
_ASK_AGAIN = "To get a new one, ask again where you entered your address."
_ENDED: Mapping[str, Message] = MappingProxyType(
    {
        "expired": Message("This link has run out", (f"It worked for a limited time only. {_ASK_AGAIN}",)),
        "superseded": Message(
            "This link was replaced",
            (
                "Only the newest mail works; if you used that one, there is nothing left to do.",
                "Otherwise ask again where you entered your address, and you get a new one.",
            ),
        ),
        "cancelled": Message("This request was cancelled", (f"The link no longer works. {_ASK_AGAIN}",)),
    }
)


@blueprint.get("/verify")
def ask() -> Response:
    """The form. Looking at it changes nothing."""
    return _page(_ASK)


@blueprint.post("/verify")
def answer() -> Response:
    """Confirm or revoke, as the pressed button says. Raises what the handler below turns into a page."""
    act = _ACTIONS.get(_only("action"))
    if act is None:
        raise _unreadable("action")
    token = tokens.normalise(_only("token"))
    if token is None:
        raise TokenInvalid
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
    consumption.revoke(services().database, token)
    return _page(_REVOKED)


def _confirm(token: str) -> Response:
    consumed = consumption.consume(services().database, token)
    onward = consumed.return_url and return_urls.with_verification(
        consumed.return_url, public("ver", consumed.verification_id)
    )
    return _page(_CONFIRMED, return_url=onward)


# What the buttons do. Nothing else does anything: a form that was cut off must not confirm what it was to revoke.
_ACTIONS: Mapping[str, Callable[[str], Response]] = MappingProxyType({"confirm": _confirm, "revoke": _revoke})


@blueprint.errorhandler(Exception)
def refuse(error: Exception) -> Response:
    """What went wrong, in words for the person who pressed the button; whatever it is, it becomes a page."""
    problem = errors.problem_of(error)
    if errors.is_unexpected(problem):
        errors.log_unexpected(error)
    page = _page(_message_of(error, problem.status), status=problem.status)
    page.headers.extend(problem.headers)
    return page


def _message_of(error: Exception, status: int) -> Message:
    match error:
        case TokenAlreadyUsed():
            return _USED
        case TokenExpired(newer_exists=True):
            return _NEWER
        case TokenExpired():
            return _ENDED[error.reason]
        case TokenInvalid():
            return _NOT_FOUND
        case DatabaseUnavailable():
            return _UNAVAILABLE
    return _BROKEN if status >= 500 else _UNREADABLE


def _page(message: Message, *, status: int = 200, return_url: str | None = None) -> Response:
    text = render_template(
        "verify.html", message=message, return_url=return_url, style=_STYLE, script=_SCRIPT
    )
    return Response(text, status=status, mimetype="text/html", headers=dict(_HEADERS))
