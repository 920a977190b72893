"""A whole Countersign: PostgreSQL, Redis, inbox, then the Procfile's processes; stopped in reverse."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dev.children import LAST_LINES, Child, Printer, ended, how_it_ended, python_command, read_procfile
from dev.environment import base_environment, keep_secrets, make_folder
from dev.ports import Ports
from dev.postgres import Postgres
from dev.processes import LOOPBACK, DevError, explain
from dev.redis import Redis
from dev.server import Server

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = ("web", "worker", "beat", "flower")
# Liked ports; a free one is taken where something listens already.
PORTS = {"web": 5000, "flower": 5555, "inbox": 8025, "smtp": 1025, "postgres": 5433, "redis": 6380}

# Far above what an idle machine needs: a busy one with two cores took seventy seconds in all.
RELEASE_SECONDS = 120.0
READY_SECONDS = 120.0
COMMAND_SECONDS = 60.0
WEB_STOP_SECONDS = 28.0  # gunicorn's graceful time-out is 25
WORKER_STOP_SECONDS = 25.0  # a send deadline of 15 and its result
INBOX_STOP_SECONDS = 5.0
HASTY_STOP_SECONDS = 1.0
KILLED_LINES = 3

EXAMPLE_RETURN_URL = "https://host.example/welcome"  # of the examples in the API's description
NOBODY = "ver_" + 32 * "0"  # a verification that never is: asking for it tries a key
# The access log names requests by their ids: by this one our own questions are known, and not printed.
OUR_REQUEST = "dev-stack-asks"
OUR_QUESTIONS = re.compile(rf"\b{OUR_REQUEST}\b(?!.*status\W+5)")
REFUSED = 1  # exit status of a command that was understood


class Interrupted(Exception):
    """Somebody asked to stop while the stack was starting."""


class Stack:
    """`start()`, use it, `stop()`; `stop()` is right at any moment and may be repeated.

    `given` is the caller's environment: its `DATABASE_URL`, `REDIS_URL`, `MAIL_URL` replace our own parts.
    `stop_asked` is looked at in every wait. Errors are `DevError`.
    """

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, str],
        *,
        printer: Printer,
        stop_asked: threading.Event,
        processes: Sequence[str] = PROCESSES,
        liked_ports: Mapping[str, int] = PORTS,
    ) -> None:
        self.folder, self.printer, self.stop_asked = folder, printer, stop_asked
        self.processes = processes
        make_folder(folder)
        self.ports = Ports(folder / "ports", liked_ports, lambda text: printer.line("run", text))
        self.environment = base_environment(given, keep_secrets(folder / "secrets"), folder)
        self.urls: dict[str, str] = {}
        self.servers: list[Server] = []
        self.children: list[Child] = []

    def start(self) -> None:
        """Everything started, inbox and web answering, when it returns; the worker needs a moment more."""
        self._start_postgres()
        self._start_redis()
        self._start_inbox()
        self._release()
        self._set_web_urls()
        for name in self.processes:
            self._start_process(name)
        self._wait_for_http()

    def _start_postgres(self) -> None:
        if not self.environment.get("DATABASE_URL"):
            postgres = Postgres(self.folder / "postgres", port=self.ports.choose("postgres"))
            self._started(
                postgres, f"PostgreSQL {postgres.installation.major} ({postgres.installation.source})"
            )
            self.environment["DATABASE_URL"] = postgres.url()
        self.urls["DATABASE_URL"] = self.environment["DATABASE_URL"]

    def _start_redis(self) -> None:
        if not self.environment.get("REDIS_URL"):
            redis = Redis(self.folder / "redis", port=self.ports.choose("redis"))
            self._started(redis, "Redis")
            self.environment["REDIS_URL"] = redis.url()
        self.urls["REDIS_URL"] = self.environment["REDIS_URL"]

    def _started(self, server: Server, what: str) -> None:
        self._look_for_stop()
        self.servers.append(server)
        server.start()
        self.printer.line("run", f"{what} on 127.0.0.1:{server.port}")

    def _start_inbox(self) -> None:
        self.urls["INBOX_URL"] = ""
        if self.environment.get("MAIL_URL"):
            return
        smtp, http = self.ports.choose("smtp"), self.ports.choose("inbox")
        command = python_command("dev.inbox", "--smtp-port", smtp, "--http-port", http)
        self._start_child("inbox", command, self.environment)
        self.environment["MAIL_URL"] = f"smtp://{LOOPBACK}:{smtp}"
        self.urls["INBOX_URL"] = f"http://{LOOPBACK}:{http}"

    def _set_web_urls(self) -> None:
        asked = self.environment.get("PORT", "")
        self.web_port = self.ports.choose("web", int(asked) if asked.isdecimal() else 0)
        self.urls["API_URL"] = f"http://{LOOPBACK}:{self.web_port}"
        self.urls["OPS_URL"] = f"{self.urls['API_URL']}/ops"
        self.environment.setdefault("PUBLIC_URL", self.urls["API_URL"])
        self.flower_port = self.ports.choose("flower") if "flower" in self.processes else 0
        self.urls["FLOWER_URL"] = f"http://{LOOPBACK}:{self.flower_port}" if self.flower_port else ""
        self.ports.keep()

    def _release(self) -> None:
        """Migrate, as the platform's release phase does. Its words come once: here or in the error."""
        child = self._child("release", read_procfile(ROOT / "Procfile")["release"], self.environment)
        child.start(Printer(io.StringIO()))
        try:
            self._wait("release", lambda: child.returncode() is not None, RELEASE_SECONDS)
        finally:
            child.stop(seconds=5)
        if child.returncode() != 0:
            raise DevError(with_last_lines(child))
        for line in child.last_lines:
            self.printer.line("release", line)

    def _start_process(self, name: str) -> None:
        command = for_a_desk(read_procfile(ROOT / "Procfile")[name])
        ports = {"web": self.web_port, "flower": self.flower_port}
        port = {"PORT": str(ports[name])} if name in ports else {}
        self._start_child(name, command, {**self.environment, **port})

    def _start_child(self, name: str, command: str, environment: Mapping[str, str]) -> None:
        self._look_for_stop()
        self.children.append(self._child(name, command, environment).start(self.printer))

    def _child(self, name: str, command: str, environment: Mapping[str, str]) -> Child:
        return Child(name, command, environment, folder=ROOT, unprinted=OUR_QUESTIONS)

    def _wait_for_http(self) -> None:
        if self.urls["INBOX_URL"]:
            address = f"{self.urls['INBOX_URL']}/messages?brief=1"
            self._wait("inbox", lambda: status_of(address) == 200, READY_SECONDS)
        self._wait("web", lambda: status_of(f"{self.urls['API_URL']}/readyz") == 200, READY_SECONDS)

    def wait_for_worker(self) -> None:
        """Until our worker answers over the broker. Call it last: the question costs a second of a core."""
        self._wait("worker", self._worker_answers, READY_SECONDS)

    def _worker_answers(self) -> bool:
        """Ask with the project's Celery settings (its code would take seconds more to load), and by name: a broker
        that was given to us may have other workers.
        """
        name = f"celery@{socket.gethostname()}"
        answer = self.run_command(
            f"celery --config celery_config inspect ping --destination {name} --timeout 1 --json"
        )
        return answer.returncode == 0 and "pong" in answer.stdout

    def _wait(self, name: str, check: Callable[[], bool], seconds: float) -> None:
        """Until `check` holds; ends early when a child died or a stop was asked for."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look_for_stop()
            self.look_for_deaths()
            if check():
                return
            self.stop_asked.wait(0.1)
        raise DevError(f"{name} does not answer after {seconds:.0f} s; its log is above")

    def _look_for_stop(self) -> None:
        if self.stop_asked.is_set():
            raise Interrupted

    def look_for_deaths(self) -> None:
        """Raises `DevError` with the last lines when something that should run does not."""
        child = ended(self.children)
        if child is not None:
            raise DevError(with_last_lines(child))
        for server in self.servers:
            if not server.is_running():
                raise DevError(f"{server.name} ended unexpectedly; its log: {server.log}")

    def run_command(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a shell line of the project in the stack's environment, a minute at most; captures output."""
        try:
            return subprocess.run(
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DevError(f"`{command}` did not end within {COMMAND_SECONDS:.0f} s") from error

    def create_key(self, name: str, *, is_test: bool = False) -> str:
        """A new API key for the client of that name, which is made where there is none."""
        said = []
        create = f"clients create --return-url {EXAMPLE_RETURN_URL}{' --test' if is_test else ''}"
        for command in (create, "keys create"):
            answer = self.run_command(f"flask --app app {command} {name} --json")
            with suppress(ValueError, KeyError, TypeError):
                return str(json.loads(answer.stdout)["api_key"])
            words = " ".join((answer.stderr or answer.stdout).split()) or "no answer"
            said.append(f"`{command} {name}`: {words}")
            if answer.returncode != REFUSED:
                break
        raise DevError(f"cannot create an API key; {'; '.join(said)}")

    def stop(self, *, throw_away: bool = False) -> None:
        """Web, beat and Flower; the worker; the inbox; Redis; PostgreSQL last.

        `throw_away` asks all at the same time and is short of patience: the data goes too.
        """
        children = {child.name: child for child in self.children}
        first = [children[name] for name in ("web", "beat", "flower") if name in children]
        for child in self.children if throw_away else first:
            child.ask_to_stop()
        for child in first:
            self._stop_child(child, HASTY_STOP_SECONDS if throw_away else WEB_STOP_SECONDS)
        for name, seconds in (("worker", WORKER_STOP_SECONDS), ("inbox", INBOX_STOP_SECONDS)):
            if name in children:
                self._stop_child(children[name], HASTY_STOP_SECONDS if throw_away else seconds)
        for server in reversed(self.servers):
            server.stop(signal.SIGQUIT if throw_away else None)
        self.children, self.servers = [], []

    def _stop_child(self, child: Child, seconds: float) -> None:
        if not child.stop(seconds=seconds):
            self.printer.line("run", f"{child.name} did not stop within {seconds:.0f} s and was killed")


def for_a_desk(command: str) -> str:
    """A Procfile line for one machine: reachable from nowhere else, and without banners.

    Flower looks for workers before they are there, and would warn about it in a format of its own.
    """
    command = re.sub(r"^celery ", "celery --quiet ", command.replace("0.0.0.0", LOOPBACK))
    command = re.sub(r"^gunicorn ", "gunicorn --log-level warning ", command)
    return re.sub(r"^(celery .*\bflower)\b", r"\1 --logging=error", command)


def status_of(url: str, headers: Mapping[str, str] | None = None) -> int:
    """The HTTP status of a GET; 0 when nothing answers."""
    try:
        request = urllib.request.Request(url, headers={"X-Request-ID": OUR_REQUEST, **(headers or {})})
        with _opener.open(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return 0


# Our own services are asked directly, whatever proxy the environment names.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def with_last_lines(child: Child) -> str:
    """What ended and its last lines, for a person."""
    code = child.returncode()
    most = (
        KILLED_LINES if code is not None and code < 0 else None
    )  # whom a signal killed had nothing to say about it
    lines = "\n".join(f"    {line}" for line in map(explain, [*child.last_lines][-(most or LAST_LINES) :]))
    return f"{how_it_ended(child)}; its last lines:\n{lines}" if lines else f"{how_it_ended(child)}, silently"
