"""Structured logs for every process, redacted by construction (G9).

Only the keys of `KEYS` are written, every text passes `mask`, and an exception is its type and where it happened: never
its message (drivers quote rows in theirs), never local values. The standard library's loggers, hence Celery's, gunicorn's and
every library's, go the same way; of those that quote callers or rows, only their own words are kept.

`mask` is the second line of defence: what callers wrote is not logged in the first place.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
import unicodedata
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import pairwise
from types import TracebackType
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import structlog
from structlog.typing import EventDict, WrappedLogger

from db import tokens

FORMATS = ("json", "console")

# What a line may say. Another key is left out and named in `dropped`: add it here once its values are known to be safe.
KEYS = frozenset(
    {
        *("event", "level", "logger", "timestamp", "dropped", "exception", "where", "alert"),
        *("request_id", "correlation_id", "client_id", "verification_id", "delivery_id"),
        *("method", "path", "status", "milliseconds", "code", "endpoint"),
        *("owner", "worker", "lease_token", "action", "provider", "sender_domain", "purpose"),
        *("outcome", "error_code", "category", "response_status", "state", "stale", "evidence", "reason"),
        *(
            "count",
            "counts",
            "limit",
            "seconds",
            "slot",
            "slots",
            "trigger",
            "attempt",
            "retry_at",
            "until",
            "kind",
        ),
        *("release", "version", "revision", "signal", "port", "queue", "task", "variable", "pid"),
    }
)

_LONGEST = 500
_DEEPEST_FRAMES = 4
# Control characters: one event, one line. Invisible ones: they would hide what stands between them.
_UNSEEN = (
    (re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+"), " "),
    (re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]+"), " "),
)
_URLS = (
    # those whose host part is a provider's key, and credentials in all others
    (
        re.compile(r"(?i)\b(resend|postmark|sendgrid|mailgun|brevo|mailersend|sparkpost|mailjet)://\S+"),
        r"\1://***",
    ),
    (re.compile(r"(?<=://)\S+@"), "***@"),
    # query strings and fragments
    (re.compile(r"(?<=[\w/])[?#][^\s'\"]+"), "?***"),
)
_KEYS = (
    # API keys: the prefix finds them, the rest opens doors; and the rest alone (ids of that length are hex)
    (re.compile(r"(?i)\b(cs[_-][a-z]+[_-][a-z0-9]+)[_-][a-z0-9]+"), r"\1_***"),
    (re.compile(r"(?i)(?<![^\W_])(?![0-9a-f]{32}(?![^\W_]))[a-z0-9]{32}(?![^\W_])"), "****"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 ***"),
)
# An address: from where a word begins, or a quoted local part, to the @; what URLs left is covered already.
_ADDRESS = re.compile(
    r"""(?<![^\s<>(),;"])(?!(?:\w+://)?\*\*\*@)(?:"[^"]{0,64}"|[^\s<>(),;"@\uff20\ufe6b])++\s?[@\uff20\ufe6b]+\s?(?=\S)"""
)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_WORD = re.compile(rf"{_UUID}|[^\W_]+")
_TOKEN_LENGTH = 16
_NOT_IN_TOKENS = frozenset("ILOU")
_WIDEST_GAP = 3
_TRACE_ID = re.compile(r"[0-9a-f]{16}|\d{8}T\d{6}Z")  # and compact times


def mask(text: str) -> str:
    """`text` on one line, with what looks like an address, a token, a key or a credential covered.

    Percent-encoding is undone, however often it was done. Words, numbers and ids (hex, UUIDs) stay readable.
    """
    text = _replace(
        text[: 2 * _LONGEST], _URLS
    )  # before decoding: a password may hold what ends it afterwards
    text = _replace(_decoded(text), (*_UNSEEN, *_URLS, *_KEYS, (_ADDRESS, "***@")))
    text = _without_tokens(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _replace(text: str, patterns: Sequence[tuple[re.Pattern[str], str]]) -> str:
    for pattern, instead in patterns:
        text = pattern.sub(instead, text)
    return text


def _decoded(text: str) -> str:
    while "%" in text and (decoded := unquote(text)) != text:
        text = decoded
    return text


def _without_tokens(text: str) -> str:
    """`text` without tokens: sixteen of their characters, look-alikes too, in groups with any separators."""
    kept, end = [], 0
    for start, stop in _token_spans(text):
        if start >= end:
            kept += [text[end:start], "****"]
        end = max(end, stop)
    return "".join([*kept, text[end:]])


def _token_spans(text: str) -> Iterator[tuple[int, int]]:
    words = list(_WORD.finditer(text))
    for index in range(len(words)):
        groups = _token_groups(words[index : index + _TOKEN_LENGTH])
        gaps = [text[a.end() : b.start()] for a, b in pairwise(groups)]
        if (
            groups
            and all(len(gap) <= _WIDEST_GAP for gap in gaps)
            and _is_token([g[0] for g in groups], gaps)
        ):
            yield groups[0].start(), groups[-1].end()


def _token_groups(words: Sequence[re.Match[str]]) -> Sequence[re.Match[str]]:
    """The first of `words`, as many as make a token: of four, eight or twelve characters, or all of one or two."""
    first, length = len(words[0][0]), 0
    for count, word in enumerate(words, 1):
        size = len(word[0])
        if size != first and (size % 4 or first % 4):
            break
        length += size
        if length >= _TOKEN_LENGTH:
            return words[:count] if length == _TOKEN_LENGTH else ()
    return ()


def _is_token(groups: Sequence[str], gaps: Sequence[str]) -> bool:
    """Whether these can be a token and are neither a number, nor an id, nor plain words."""
    whole = "".join(groups)
    if whole.isdecimal() or tokens.normalise(whole) is None or (not gaps and _TRACE_ID.fullmatch(whole)):
        return False
    if len(groups[0]) < 4:
        return not whole.isalpha()
    if any(not group.isalpha() and not group.isdecimal() for group in groups):
        return True
    # No group mixes letters and digits, as in one token of 300. What is shown as tokens are, or has none of the letters
    # that they have not and words have, is one.
    if {len(group) for group in groups} not in ({4}, {16}):
        return False
    is_dashed = bool(gaps) and all(unicodedata.category(c) == "Pd" for gap in gaps for c in gap)
    return is_dashed or not _NOT_IN_TOKENS & set(whole.upper())


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger: `log.info("what_happened", delivery_id=…)`. The event is a fixed word, values go into keys."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def bound(**values: object) -> AbstractContextManager[None]:
    """Within it, every line of this thread carries these values, e.g. `correlation_id`."""
    return structlog.contextvars.bound_contextvars(**values)


def configure(log_format: str, *, level: int = logging.INFO) -> None:
    """Send every log line of this process to stderr as `json` or `console`; replaces all handlers there are."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in list(logging.root.manager.loggerDict):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            redact,  # here already, so that no other handler sees more
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A processor: nothing passes but known keys with masked values. Twice does no harm."""
    described = _describe_exception(event.pop("exc_info", None))
    event.pop("stack_info", None)
    event.pop("stack", None)
    kept: EventDict = {key: _safe(value) for key, value in event.items() if key in KEYS}
    dropped = sorted(key for key in event if key not in KEYS)
    if dropped:
        kept["dropped"] = [mask(key) for key in dropped]
    return {**kept, **described}


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


# Libraries that put into their messages what callers sent or what drivers say of rows.
_QUOTING = frozenset({"gunicorn", "psycopg", "werkzeug", "tornado"})
_QUOTING_LOGGERS = frozenset({"celery.app.trace"})
_BEGINS_A_QUOTE = re.compile(r"[=:'\"(\[{<]")


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Takes the quotations out of libraries' messages before anything else reads them."""

    def format(self, record: logging.LogRecord) -> str:
        if not isinstance(record.msg, dict):  # that would be one of ours
            ours = logging.makeLogRecord(record.__dict__)
            ours.msg, ours.args = _own_words(record), ()
            record = ours
        return super().format(record)


def _own_words(record: logging.LogRecord) -> str:
    """A library's message: its template, with numbers; with texts unless it quotes; an exception is its type."""
    quotes = record.name.partition(".")[0] in _QUOTING or record.name in _QUOTING_LOGGERS
    if not isinstance(record.msg, str):
        return str(_argument(record.msg, quotes=quotes))
    if not record.args:  # formatted by the caller, if at all
        return _BEGINS_A_QUOTE.split(record.msg, maxsplit=1)[0] if quotes else record.msg
    given = record.args
    shown: Any = (
        {key: _argument(value, quotes=quotes) for key, value in given.items()}
        if isinstance(given, Mapping)
        else tuple(_argument(value, quotes=quotes) for value in given)
    )
    try:
        return str(record.msg % shown)
    except (TypeError, ValueError, KeyError):
        return record.msg


def _argument(value: object, *, quotes: bool) -> Any:
    if isinstance(value, BaseException):
        return type(value).__qualname__
    if value is None or isinstance(value, bool | int | float):
        return value
    return "…" if quotes else value


def _formatter(log_format: str) -> logging.Formatter:
    renderer: Any = _render_json
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
    return _Formatter(
        foreign_pre_chain=_SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact, renderer],
    )


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return json.dumps(event, ensure_ascii=True)


def _safe(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return mask(str(value))
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {mask(str(key)): _safe(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(inner) for inner in value]
    return type(value).__name__  # its repr might say anything


def _describe_exception(exc_info: object) -> MutableMapping[str, object]:
    error = _exception(exc_info)
    if error is None:
        return {}
    return {"exception": _types(error), "where": _frames(error)}


def _exception(exc_info: object) -> BaseException | None:
    if exc_info is True:
        exc_info = sys.exc_info()
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    return exc_info if isinstance(exc_info, BaseException) else None


def _types(error: BaseException) -> str:
    """The types from the outermost error to what caused it."""
    names: list[str] = []
    current: BaseException | None = error
    while current is not None and len(names) < _DEEPEST_FRAMES:
        names.append(f"{type(current).__module__}.{type(current).__qualname__}".removeprefix("builtins."))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return " < ".join(names)


def _frames(error: BaseException) -> list[str]:
    """The innermost frames: file, line and function, no values."""
    frames = traceback.extract_tb(error.__traceback__)[-_DEEPEST_FRAMES:]
    return [f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]


def _short(filename: str) -> str:
    """The last two parts of a path; the machine's layout is nobody's business."""
    return "/".join(filename.replace("\\", "/").split("/")[-2:])


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback_: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    get_logger("uncaught").critical("uncaught_exception", exc_info=(kind, error, traceback_))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
