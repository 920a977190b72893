"""Where the page may send people back to: only where the client's own list says so."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit


def is_allowed(url: str, allowed: Iterable[str]) -> bool:
    """Whether `url` is one of the client's addresses or below one: same scheme, host and port, path under its path."""
    wanted = _split(url)
    return wanted is not None and any(_is_below(wanted, entry) for entry in allowed)


def with_verification(url: str, verification_id: str) -> str:
    """`url` with `verification_id` added to its query. It proves nothing: the host asks by GET."""
    parts = urlsplit(url)
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "verification_id"]
    return parts._replace(query=urlencode([*query, ("verification_id", verification_id)])).geturl()


def is_valid_entry(url: str) -> bool:
    """Whether `url` may stand in a client's list."""
    return _split(url) is not None


def _split(url: str) -> SplitResult | None:
    """None for whatever two readers might read differently."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    steps = parts.path.lower().replace("%2e", ".").split("/")
    is_plain = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    return parts if is_plain and "\\" not in url and ".." not in steps and "." not in steps else None


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
