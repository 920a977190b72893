"""What processes leave behind beside their output: files, command lines, what the broker was told, a database's dump."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import redis
from redis.client import Redis as Client

from dev.postgres import Postgres

_PROC = Path("/proc")


class BrokerMonitor:
    """Everything that Redis is told while this context is open, as its MONITOR shows it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=10)
        self._password = parts.password or ""
        self.said = bytearray()
        self._thread = threading.Thread(target=self._read, name="broker-monitor", daemon=True)

    def __enter__(self) -> Self:
        self._socket.sendall(f"AUTH {self._password}\r\nMONITOR\r\n".encode())
        assert self._socket.recv(10, socket.MSG_WAITALL) == b"+OK\r\n+OK\r\n"
        self._socket.settimeout(None)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._socket.close()

    def _read(self) -> None:
        with suppress(OSError):
            while piece := self._socket.recv(65_536):
                self.said += piece


def broker_contents(url: str) -> bytes:
    """Every key of Redis and what it holds."""
    with Client.from_url(url, socket_timeout=10) as client:
        keys: Iterable[Any] = client.scan_iter(count=1000)
        return b"\n".join(repr((key, _contents(client, key))).encode() for key in keys)


def _contents(client: Any, key: bytes) -> object:
    readers = {
        b"string": client.get,
        b"list": lambda name: client.lrange(name, 0, -1),
        b"set": client.smembers,
        b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        b"hash": client.hgetall,
        b"none": lambda name: None,  # it went since it was listed
    }
    try:
        return readers[client.type(key)](key)
    except redis.ResponseError:  # it went meanwhile, and came again as something else
        return None


def session_of(leader: int) -> list[int]:
    """The ids of a child and of its own children: a child leads a session."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if _session(pid) == leader]


def _session(pid: int) -> int:
    with suppress(OSError, ValueError):
        return os.getsid(pid)
    return 0


def command_lines(pids: Iterable[int]) -> bytes:
    """What `ps` would show of these processes: command line and title."""
    return b"\n".join(
        read for pid in pids for name in ("cmdline", "comm") if (read := _read(_PROC / str(pid) / name))
    )


def open_files(pids: Iterable[int]) -> bytes:
    """The contents of all files that these processes hold open for writing, unlinked ones too."""
    return b"\n".join(_read(path) for pid in pids for path in _written_by(pid))


def _written_by(pid: int) -> Iterator[Path]:
    with suppress(OSError):
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError, StopIteration, ValueError):
                info = (_PROC / str(pid) / "fdinfo" / descriptor.name).read_text()
                flags = int(
                    next(line for line in info.splitlines() if line.startswith("flags:")).split()[1], 8
                )
                if descriptor.is_file() and flags & os.O_ACCMODE:
                    yield descriptor


def files_under(folder: Path) -> bytes:
    """Names and contents of all files in a folder."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return b"\n".join(str(path.relative_to(folder)).encode() + b"\n" + _read(path) for path in found)


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


def dump(postgres: Postgres, url: str, environment: Mapping[str, str]) -> bytes:
    """The whole database as `pg_dump` writes it, or as COPY does where there is no `pg_dump`."""
    program = postgres.installation.bin / "pg_dump"
    if os.access(program, os.X_OK):
        done = subprocess.run(
            [program, "--inserts", "--dbname", url],
            env=dict(environment),
            capture_output=True,
            timeout=60,
            check=True,
        )
        return done.stdout
    return _copied(url)


def _copied(url: str) -> bytes:
    import psycopg

    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        pieces = []
        for (name,) in names:
            with connection.cursor().copy(f'COPY "{name}" TO STDOUT') as rows:  # type: ignore[call-overload]
                pieces += [f"INSERT INTO {name}\n".encode(), *map(bytes, rows)]
        return b"".join(pieces)
