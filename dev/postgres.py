"""An embedded PostgreSQL: the real server, on 127.0.0.1, with its data in a folder of ours."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from dev.environment import write_private_text
from dev.postgres_binaries import Installation, find_postgres
from dev.postgres_launch import Launch, choose_launch, give
from dev.processes import DevError, command_of, explain, is_alive, stop_left_behind, tail, wait_until
from dev.server import START_SECONDS, STOP_SECONDS, Server, as_arguments

DATABASE = "countersign"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # TCP only: a socket's path has a length limit and needs a folder open to both sides.
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_connections": "200",  # web, worker slots, tests side by side
}
HOST_RULES = "host all all 127.0.0.1/32 scram-sha-256\n"
# After SIGKILL the old backends need a moment to see it; until then the new server refuses.
STILL_ENDING = ("shared memory block", "lock file")


class Postgres(Server):
    """`with Postgres(folder) as postgres: connect(postgres.url())`. The user is `postgres`.

    Its password lies beside the data, for our eyes only: whoever may log in as a superuser may run programs as
    the server's owner. `settings` are added to the command line and win over ours. The data stays in
    `folder/data` between runs.
    Works as root and as a normal user; every error is a `DevError` of one line.
    """

    name = "postgres"
    end_signal = signal.SIGINT  # fast shutdown; SIGTERM would wait for clients to leave

    def __init__(self, folder: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port=port)
        self.settings = {**SETTINGS, **(settings or {})}
        self._installation: Installation | None = None
        self._launch: Launch | None = None
        self._password = ""

    @property
    def installation(self) -> Installation:
        """The binaries in use; looked for once."""
        if self._installation is None:
            self._installation = find_postgres()
        return self._installation

    @property
    def data(self) -> Path:
        """The data folder (`PGDATA`)."""
        return (self._launch.home if self._launch else self.folder) / "data"

    def url(self, database: str = DATABASE) -> str:
        """`postgresql://postgres:PASSWORD@127.0.0.1:PORT/DATABASE`, once it was started."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def kill(self) -> None:
        """Crash: every server process ends at once, nothing is flushed; the next start recovers."""
        self.stop(signal.SIGQUIT)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database (as a copy of `template`, about 26 ms) and return its URL."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template:
            statement = statement + sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending its connections; no error when there is none."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    def _prepare(self) -> None:
        self._launch = self._launch or choose_launch(self.installation.bin, self.folder)
        if not (self.data / "PG_VERSION").exists():
            write_private_text(self._password_file, f"{secrets.token_urlsafe(24)}\n")
            self._init_data(self._launch)
        self._check_version()
        give(self.data, self._launch.owner)
        self._clear_leftovers()
        if not self._password_file.exists():
            self._set_password(self._launch)
        self._password = self._password_file.read_text().strip()

    @property
    def _password_file(self) -> Path:
        return self.data.with_name("password")

    def _init_data(self, launch: Launch) -> None:
        """`initdb` beside, then rename: an interrupted one leaves no half data folder."""
        fresh = self.data.with_name("data.new")
        shutil.rmtree(fresh, ignore_errors=True)
        give(self._password_file, launch.owner)  # initdb reads it
        for locale in ("C.UTF-8", "C"):  # older systems lack the first
            fresh.mkdir(mode=0o700)
            give(fresh, launch.owner)
            arguments = (
                "-D",
                str(fresh),
                "-A",
                "scram-sha-256",
                f"--pwfile={self._password_file}",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                f"--locale={locale}",
            )
            options: dict[str, Any] = launch.options()
            answer = subprocess.run(
                launch.command("initdb", *arguments), capture_output=True, text=True, check=False, **options
            )
            if answer.returncode == 0:
                fresh.rename(self.data)
                return
            shutil.rmtree(fresh, ignore_errors=True)
        raise DevError(f"initdb failed: {explain(' | '.join(answer.stderr.strip().splitlines()[-3:]))}")

    def _set_password(self, launch: Launch) -> None:
        """Close a data folder that let everybody in. The file comes last: half done is done again."""
        password = secrets.token_urlsafe(24)
        options: dict[str, Any] = launch.options()
        answer = subprocess.run(
            launch.command("postgres", "--single", "-D", str(self.data), "postgres"),
            input=f"ALTER ROLE postgres PASSWORD '{password}'\n",
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        if answer.returncode != 0 or "ERROR:" in answer.stderr:
            words = explain(" | ".join(answer.stderr.replace(password, "***").strip().splitlines()[-3:]))
            raise DevError(f"cannot give the database in {self.data} a password: {words}")
        (self.data / "pg_hba.conf").write_text(HOST_RULES)
        write_private_text(self._password_file, f"{password}\n")

    def _check_version(self) -> None:
        found, ours = (self.data / "PG_VERSION").read_text().strip(), self.installation.major
        if found != str(ours):
            raise DevError(
                f"{self.data} was made by PostgreSQL {found}, this one is {ours}: set COUNTERSIGN_POSTGRES_BIN"
                f" to a PostgreSQL {found}, or remove the folder to start with an empty database"
            )

    def _clear_leftovers(self) -> None:
        """A server that outlived its owner is stopped; a stale `postmaster.pid` of a killed one is removed.

        PostgreSQL sees most stale files by itself, but not one whose number now belongs to another program of
        the same user, which is common where numbers start at 1 (containers).
        """
        pid = self._recorded_pid()
        if pid is None:
            return
        if is_alive(pid) and str(self.data) in command_of(pid):
            stop_left_behind(pid, self.end_signal, seconds=STOP_SECONDS)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _recorded_pid(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        return None

    def _answers(self) -> bool:
        started = wait_until(self._attempt, seconds=START_SECONDS, step=0.1)
        if started == "ready":
            if self._missing_database():
                self.create_database(DATABASE)
            return True
        return False

    def _attempt(self) -> str:
        """One start: `ready`, `failed` (the log says why), or empty when it is worth trying again."""
        assert self._launch is not None
        options: dict[str, Any] = self._launch.options()
        arguments = ("-D", str(self.data), "-p", str(self.port), *as_arguments(self.settings, "-c"))
        process = self._spawn(self._launch.command("postgres", *arguments), **options)
        ended_or_ready = wait_until(
            lambda: process.poll() is not None or self._is_ready(), seconds=START_SECONDS
        )
        if process.poll() is None:
            return "ready" if ended_or_ready else "failed"
        return "" if any(text in tail(self.log) for text in STILL_ENDING) else "failed"

    def _is_ready(self) -> bool:
        """Our own server says so in its file (line 1 its id, line 8 its state): no stranger is believed."""
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    def _missing_database(self) -> bool:
        with psycopg.connect(self.url("postgres"), connect_timeout=10) as connection:
            row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        return row is None
