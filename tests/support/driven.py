"""Drives every process of a deployment with values that must not be seen, and keeps all that they write.

Two of each: one logs JSON, one for the console. What is used: keys, tokens, addresses, account ids, metadata, words of the
mail, passwords and keys of the configuration; where it is used: where it belongs, where it does not, and in everything that
fails: providers' replies, database errors that quote rows, rows that cannot be sent, broken HTTP, wrong commands, senseless
settings.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import socket
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
from psycopg.rows import dict_row

from db import config as db_config
from db import ids, tokens
from db.logs import FORMATS
from dev.processes import free_port
from dev.redis import Redis
from tests.support import observed
from tests.support.canaries import Canary, word
from tests.support.cluster import ROOT, Cluster, wait_for
from tests.support.environment import environment
from tests.support.smtp_server import Connection, SmtpServer

_TIMEOUT = 20
_TYPED = re.compile(rb'<input id="token"[^>]*>')


class Driven:
    """The processes, and what they were given (`canaries`) and wrote (`sources`)."""

    def __init__(self, database_url: str, redis: Redis, folder: Path) -> None:
        self.database_url, self.redis, self.folder = database_url, redis, folder
        self.canaries: list[Canary] = []
        self.sources: dict[str, bytearray] = {}
        self.people: dict[str, dict[str, Any]] = {}
        self.sender = word("sender")
        self.smtp_password, self.flower_password = word("password"), word("password")
        self.ring = base64.b64encode(secrets.token_bytes(32)).decode()
        self.secret_key = word("secretkey")
        self.webs = {log_format: free_port() for log_format in FORMATS}
        self.flower_port = free_port()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._know_configuration()

    # What must not be seen

    def know(self, what: str, value: str) -> str:
        """Remember a value as one that must not be seen; answers it."""
        self.canaries.append(Canary(what, value))
        return value

    def _know_configuration(self) -> None:
        self.know("the mail's sender name", self.sender)
        self.know("the mail account's password", self.smtp_password)
        self.know("Flower's password", self.flower_password)
        self.know("the token key", self.ring)
        self.know("SECRET_KEY", self.secret_key)
        self.know("the broker's password", urlsplit(self.redis.url()).password or "")
        self.know("the database's password", urlsplit(self.database_url).password or "")

    def person(self, kind: str, where: str) -> dict[str, Any]:
        """A request's body of new values. `kind` is what the mail server does with it."""
        local, account, note = word(kind), word("account"), word("note")
        self.know(f"the {kind} address ({where})", local)
        self.know(f"the {kind} account id ({where})", account)
        self.know(f"the {kind} metadata ({where})", note)
        return {"account_id": account, "email": f"{local}@{kind}.example", "metadata": {note: [note]}}

    def write(self, source: str, written: bytes) -> None:
        """Keep what `source` wrote."""
        self.sources.setdefault(source, bytearray()).extend(written + b"\n")

    # Processes

    def environment(self, mail_port: int) -> Mapping[str, str]:
        mail_url = f"smtp://mailer:{self.smtp_password}@127.0.0.1:{mail_port}?tls=none"
        return environment(
            self.database_url,
            self.redis.url(),
            mail_url,
            MAIL_FROM=f"{self.sender} <verify@countersign.example>",
            PUBLIC_URL=f"http://127.0.0.1:{self.webs['json']}",
            TOKEN_KEYS=f"k1:{self.ring}",
            SECRET_KEY=self.secret_key,
            FLOWER_BASIC_AUTH=f"operator:{self.flower_password}",
            BEAT_SCHEDULE=str(self.temporary / "beat-schedule"),
            TMPDIR=str(self.temporary),
            WEB_CONCURRENCY="1",
            PYTHONUNBUFFERED="1",
        )

    def start(self, cluster: Cluster) -> None:
        """Everything of the Procfile; answers when all of it answers."""
        for log_format, port in self.webs.items():
            cluster.start("web", f"web-{log_format}", LOG_FORMAT=log_format, PORT=str(port))
            cluster.start("worker", f"worker-{log_format}", LOG_FORMAT=log_format)
        cluster.start("beat", "beat", LOG_FORMAT="json")
        cluster.start("flower", "flower", LOG_FORMAT="console", PORT=str(self.flower_port))
        for port in self.webs.values():
            wait_for(lambda port=port: _status(f"http://127.0.0.1:{port}/readyz") == 200, "the web process")
        for log_format in self.webs:
            wait_for(lambda name=f"worker-{log_format}": " ready" in cluster.output(name), "a worker")

    def look_at_processes(self, cluster: Cluster) -> None:
        """What others on the machine could see of them now."""
        pids = [pid for child in cluster.children for pid in observed.session_of(child.pid)]
        assert len(pids) >= len(cluster.children)
        self.write("command lines", observed.command_lines(pids))
        self.write("open files", observed.open_files(pids))

    # The API

    def client(self, log_format: str, key: str) -> httpx.Client:
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.webs[log_format]}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_TIMEOUT,
        )

    def heard(self, answer: httpx.Response) -> httpx.Response:
        """Keep an answer; `account_id` and `metadata` are its reader's own."""
        self.write("answers", repr(answer.headers.multi_items()).encode())
        body = answer.content
        with suppress(ValueError):
            body = json.dumps(_without_own(json.loads(body))).encode()
        # The page's field keeps what a person typed into it, for them to correct.
        self.write("answers", _TYPED.sub(b"", body))
        return answer

    def token(self, verification_id: str) -> str:
        """The token of a verification, as its mail shows it."""
        row = self.query(
            "SELECT id, token_key_id, token_nonce, email FROM verifications WHERE id = %s",
            ids.parse("ver", verification_id),
        )[0]
        keys = db_config.parse_token_keys(f"k1:{self.ring}")
        derived = tokens.derive(keys, row["token_key_id"], row["id"], row["email"], row["token_nonce"])
        return self.know(f"the token of {verification_id}", tokens.grouped(derived))

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.database_url, autocommit=True, row_factory=dict_row) as connection:
            done = connection.execute(statement, values or None)  # type: ignore[call-overload]
            return done.fetchall() if done.description else []

    def raw(self, port: int, request: bytes) -> None:
        """Send exactly this and keep what comes back."""
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = bytearray()
            with suppress(ConnectionResetError):
                while piece := connection.recv(65_536):
                    answer += piece
        self.write("answers", bytes(answer))

    def run(self, cluster: Cluster, commands: Iterable[tuple[str, Mapping[str, str]]]) -> list[str]:
        """Run shell lines side by side; keeps what they print, and answers it."""
        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda each: self._run(cluster, *each), commands))
        for said in done:
            self.write("commands", said.encode())
        return done

    def _run(self, cluster: Cluster, line: str, changes: Mapping[str, str]) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=ROOT,
            env={**cluster.environment, **changes},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def mail_server(password: str) -> SmtpServer:
    """A server that says in its replies whom a mail is for and what is in it, each as its address asks."""
    return SmtpServer(users={"mailer": password}, rcpt=_answer_recipient, end=_answer_message)


def _answer_recipient(connection: Connection) -> None:
    if connection.recipient.startswith("refused"):
        connection.write(f"550 5.1.1 <{connection.recipient}> no such user\r\n".encode())
    elif connection.recipient.startswith("strange"):
        connection.write(f"250-{connection.recipient}\r\n999 <{connection.recipient}>?\r\n".encode())
    else:
        connection.usual()


def _answer_message(connection: Connection) -> None:
    quoted = connection.message.replace(b"\r\n", b" ")[:900].replace(b"=", b"")
    to, token = connection.recipient.encode(), _token_in(connection.message)
    replies = {
        "deferred": b"451 4.3.0 not now, %b: %b %b\r\n" % (to, token, quoted[:300]),
        "content": b"554 5.7.1 %b said to %b: %b\r\n" % (token, to, quoted[:300]),
        "garbled": b"%b %b\r\n" % (to, token),
        "queued": b"250 2.0.0 Ok: queued as %b for %b\r\n" % (token, to),
    }
    kind = next((kind for kind in replies if connection.recipient.startswith(kind)), None)
    if kind is None:
        connection.usual()
    else:
        connection.write(replies[kind])


def _token_in(message: bytes) -> bytes:
    return message.replace(b"=\r\n", b"").partition(b"/verify#")[2][:19]


def _without_own(document: Any) -> Any:
    if isinstance(document, dict):
        return {k: _without_own(v) for k, v in document.items() if k not in {"account_id", "metadata"}}
    return [_without_own(each) for each in document] if isinstance(document, list) else document


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.HTTPError:
        return 0
