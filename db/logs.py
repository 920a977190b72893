"""Structured logs for every process, redacted by construction (G9).

Only the keys of `KEYS` are written, every text passes `mask`, and an exception is its type and where it happened: never
its message (drivers quote rows in theirs), never local values. The standard library's loggers, hence Celery's, gunicorn's and
every library's, go the same way.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any
from uuid import UUID

import structlog
from structlog.typing import EventDict, WrappedLogger

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
_MASKS = (
    # control characters: one event, one line
    (re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+"), " "),
    # API keys: the prefix finds them, the rest opens doors
    (re.compile(r"\b(cs_[a-z]+_[A-Za-z0-9]+)_[A-Za-z0-9]+"), r"\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 ***"),
    # URLs whose host part is a provider's key, and credentials in all others
    (
        re.compile(r"(?i)\b(resend|postmark|sendgrid|mailgun|brevo|mailersend|sparkpost|mailjet)://\S+"),
        r"\1://***",
    ),
    (re.compile(r"(?<=://)[^/\s@]+@"), "***@"),
    # query strings and fragments
    (re.compile(r"(?<=[\w/])[?#][^\s'\"]+"), "?***"),
    # addresses, written out or percent-encoded
    (re.compile(r"(?<![^\s@/<>(),;'=])[^\s@/<>(),;'=]+(?:@|%40)(?=[^\s@])"), "***@"),
    # tokens, grouped or not; a row of digits is a number
    (
        re.compile(
            r"(?<![\w-])(?![\d-]+(?![\w-]))[0-9A-HJKMNP-TV-Z]{4}(?:-?[0-9A-HJKMNP-TV-Z]{4}){3}(?![\w-])"
        ),
        "****",
    ),
)


def mask(text: str) -> str:
    """`text` on one line, with what looks like an address, a token, a key or a credential covered."""
    text = text[: 4 * _LONGEST]
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


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


def _formatter(log_format: str) -> logging.Formatter:
    renderer: Any = _render_json
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
    return structlog.stdlib.ProcessorFormatter(
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
