"""Where the page may send people back to: only where the client's own list says so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

_END_OF_STEP = re.compile(r"[;?#\s]")  # to somebody who reads what was decoded once more
_DECODINGS = 3  # a proxy, a framework, and one more


def is_allowed(url: str, allowed: Iterable[str]) -> bool:
    """Whether `url` is one of the client's addresses or below one: same scheme, host and port, path under its path."""
    wanted = _split(url)
    return wanted is not None and any(_is_below(wanted, entry) for entry in allowed)


def with_verification(url: str, verification_id: str) -> str:
    """`url` with `verification_id` in its query. It proves nothing: the host asks by GET.

    Every other byte stays as it is: the host may have signed them.
    """
    rest, hash_sign, fragment = url.partition("#")
    path, _, query = rest.partition("?")
    ours = f"verification_id={verification_id}"
    pairs = [ours if _is_verification_id(pair) else pair for pair in query.split("&")] if query else []
    if ours not in pairs:
        pairs.append(ours)
    return f"{path}?{'&'.join(pairs)}{hash_sign}{fragment}"


def is_valid_entry(url: str) -> bool:
    """Whether `url` may stand in a client's list."""
    return _split(url) is not None


def _is_verification_id(pair: str) -> bool:
    return unquote_plus(pair.partition("=")[0]) == "verification_id"


def _split(url: str) -> SplitResult | None:
    """None for whatever two readers might read differently."""
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
        is_plain = is_plain and parts.port != 0 and "\\" not in url and not _has_controls(url)
        return parts if is_plain and _stays_in_place(parts.path) else None
    except ValueError:
        return None


def _stays_in_place(path: str) -> bool:
    """Whether it has no steps but those that are seen, however often somebody behind it decodes it.

    UnicodeDecodeError for what is no UTF-8: some read overlong forms as a slash.
    """
    for _ in range(_DECODINGS):
        decoded = unquote(path, errors="strict")
        if decoded.count("/") != path.count("/") or "\\" in decoded or _has_controls(decoded):
            return False
        path = decoded
    return not {_END_OF_STEP.split(step, maxsplit=1)[0] for step in path.split("/")} & {".", ".."}


def _has_controls(text: str) -> bool:
    """Line ends and the like: some readers cut an address there, some leave them out."""
    return any(char < " " or char == "\x7f" for char in text)


def _is_below(wanted: SplitResult, entry: str) -> bool:
    base = _split(entry)
    if base is None or (wanted.scheme, wanted.hostname, _port(wanted)) != (
        base.scheme,
        base.hostname,
        _port(base),
    ):
        return False
    under = base.path.rstrip("/")
    return wanted.path == base.path or wanted.path.startswith(f"{under}/") or (not under and not wanted.path)


def _port(parts: SplitResult) -> int:
    return parts.port or {"http": 80, "https": 443}[parts.scheme]
