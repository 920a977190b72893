"""The environment of a local Countersign: secrets that last, and the files that tell others where it is."""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dev.processes import DevError, is_full

MAIL_FROM = "Countersign <verify@countersign.example>"


def write_private(path: Path, values: Mapping[str, str]) -> None:
    """Write `NAME=value` lines (quoted for a shell where needed), mode 0600, all or nothing."""
    lines = (f"{name}={shlex.quote(value) if value else ''}\n" for name, value in values.items())
    write_private_text(path, "".join(lines))


def write_private_text(path: Path, text: str) -> None:
    """Write `text`, mode 0600, all or nothing."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def read_values(path: Path) -> dict[str, str]:
    """What `write_private` wrote; lines that are no assignment are left out, a missing file is empty."""
    values = {}
    with suppress(FileNotFoundError):
        for line in path.read_text().splitlines():
            name, separator, value = line.partition("=")
            if separator and name.isidentifier():
                with suppress(ValueError):  # an unfinished quote
                    values[name] = "".join(shlex.split(value))
    return values


def keep_secrets(path: Path) -> dict[str, str]:
    """The secrets of this folder: made once, kept for ever (tokens in old mails must stay good)."""
    kept = read_values(path)
    made: dict[str, Callable[[], str]] = {
        "TOKEN_KEYS": lambda: f"dev1:{base64.b64encode(secrets.token_bytes(32)).decode()}",
        "SECRET_KEY": lambda: secrets.token_urlsafe(32),
        "OPS_PASSWORD": lambda: secrets.token_urlsafe(12),
        "FLOWER_BASIC_AUTH": lambda: f"operator:{secrets.token_urlsafe(12)}",
    }
    missing = {name: make() for name, make in made.items() if not kept.get(name)}
    if missing:
        kept |= missing
        write_private(path, kept)
    return kept


def base_environment(given: Mapping[str, str], kept: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`given` (it wins), the secrets, and what makes the service fit for one machine.

    Programs of our own virtual environment come first on PATH.
    """
    defaults = {
        **kept,
        "ALLOW_RESERVED_DOMAINS": "1",
        "MAIL_FROM": MAIL_FROM,
        "BEAT_SCHEDULE": str(folder / "beat-schedule"),
        "FLOWER_ADDRESS": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
        "LOG_FORMAT": "console",
        # In a container everything is root; Celery's advice about it would be repeated at each start.
        "PYTHONWARNINGS": "ignore:You're running the worker",
    }
    environment = {**defaults, **{name: value for name, value in given.items() if value}}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return environment


def make_folder(folder: Path) -> None:
    """Make the data folder and close it to others. Raises `DevError` where it cannot be written.

    Root's stays open to pass through, not to list: PostgreSQL runs as another user there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # somebody else's folder that we may write in
            folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
        probe = folder / ".writable"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        todo = "free about 550 MB of disk space" if is_full(error) else "make the folder writable"
        raise DevError(f"cannot write in {folder} ({error.strerror}): {todo}") from error
