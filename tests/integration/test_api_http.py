"""The HTTP edge as the network meets it: the Procfile's web process, spoken to over raw sockets."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from db import clients
from db.session import Database
from dev.postgres import Postgres
from dev.processes import free_port
from tests.support.api import token_of
from tests.support.cluster import Cluster, wait_for
from tests.support.environment import environment

FORM = "application/x-www-form-urlencoded"
_numbers = count(1)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `headers` by lower-case names."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def code(self) -> str:
        """The problem's code."""
        assert self.headers["content-type"] == "application/problem+json", self
        code: str = json.loads(self.body)["code"]
        return code


@dataclass
class Web:
    """The running web process, its database and a client's key."""

    port: int
    database: Database
    cluster: Cluster
    key: str = field(repr=False)

    def send(self, raw: bytes, *, half_close: bool = False) -> Answer:
        """What the server answers to these bytes. `half_close`: nothing more will come."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(raw)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return read_answer(connection)

    def call(self, line: str, *headers: str, body: bytes = b"", length: int | None = None) -> Answer:
        """One request, `line` being method and path; `length` overrides the true Content-Length."""
        return self.send(
            self.raw(line, *headers, body=body, length=length), half_close=length is not None and length >= 0
        )

    def raw(self, line: str, *headers: str, body: bytes = b"", length: int | None = None) -> bytes:
        given = list(headers)
        if not any(header.startswith("Host:") for header in given):
            given.append("Host: countersign.example")
        if not any(header.startswith("Transfer-Encoding:") for header in given):
            given.append(f"Content-Length: {len(body) if length is None else length}")
        head = [
            f"{line} HTTP/1.1",
            f"Authorization: Bearer {self.key}",
            "Connection: close",
            *given,
        ]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    def create(self, *headers: str, **changes: Any) -> Answer:
        asked = {"account_id": f"account-{next(_numbers)}", "email": "ada@example.com", **changes}
        body = json.dumps(asked).encode()
        return self.call("POST /v1/verifications", "Content-Type: application/json", *headers, body=body)

    def made(self) -> tuple[str, str]:
        """A new verification's id and token."""
        verification_id = json.loads(self.create().body)["verification_id"]
        return verification_id, token_of(self.database, verification_id)

    def status(self, verification_id: str) -> str:
        status: str = json.loads(self.call(f"GET /v1/verifications/{verification_id}").body)[
            "verification_status"
        ]
        return status


def read_answer(connection: socket.socket) -> Answer:
    """Read until the server closes."""
    received = bytearray()
    while piece := connection.recv(65_536):
        received += piece
    head, _, body = received.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, body)


@pytest.fixture(scope="module")
def web(postgres: Postgres) -> Iterator[Web]:
    port = free_port()
    with ExitStack() as stack:
        url = postgres.create_database("http_edge", template="migrated")
        stack.callback(postgres.drop_database, "http_edge")
        database = Database(url, statement_timeout=4.0, size=2)
        stack.callback(database.close)
        owner = clients.create(database, "host", ())
        given = environment(url, "redis://127.0.0.1:1/0", "smtp://127.0.0.1:2", PORT=str(port))
        cluster = stack.enter_context(Cluster(given))
        running = Web(port, database, cluster, owner.key)
        cluster.start("web", WEB_CONCURRENCY="1")
        wait_for(lambda: answers(running), "the web process")
        yield running


def answers(web: Web) -> bool:
    try:
        return web.call("GET /healthz").status == 200
    except (OSError, ValueError, IndexError):
        return False


@pytest.fixture(autouse=True)
def no_alert(web: Web) -> Iterator[None]:
    """Whatever a client sends is no reason to wake anybody."""
    before = web.cluster.output()
    yield
    written = web.cluster.output()[len(before) :]
    # A token that is used before its mail left is reported; these tests send none.
    assert [line for line in written.splitlines() if '"alert"' in line and "token_leaked" not in line] == []
    assert "unexpected_error" not in written


@pytest.mark.parametrize("cut", ["", "&action", "&action=", "&action=revok", "&action=revoke"])
def test_a_form_that_was_cut_off_does_nothing(web: Web, cut: str) -> None:
    verification_id, token = web.made()
    answer = web.call(
        "POST /verify", f"Content-Type: {FORM}", body=f"token={token}{cut}".encode(), length=len(token) + 40
    )
    assert (answer.status, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "This could not be read" in answer.body
    assert "<form" in answer.body
    assert web.status(verification_id) == "requested"


def test_json_that_was_cut_off_is_refused_even_where_it_is_complete(web: Web) -> None:
    verification_id, token = web.made()
    body = json.dumps({"token": token}).encode()
    json_type = "Content-Type: application/json"
    assert web.call("POST /v1/tokens/consume", json_type, body=body, length=len(body) + 1).status == 400
    asked = b'{"account_id":"cut","email":"ada@example.com"}'
    answer = web.call("POST /v1/verifications", json_type, body=asked, length=len(asked) + 9)
    assert (answer.status, answer.code) == (400, "malformed_body")
    assert web.status(verification_id) == "requested"


BROKEN_CHUNKS = [
    b"zz\r\n{}\r\n0\r\n\r\n",
    b"\r\n\r\n",
    b"-2\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}XX0\r\n\r\n",
    b"5\r\n{}",
    b"2\r\n{}\r\n0\r\n",
    b"2;\x01\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}\r\n0\r\nHost: x\r\n\r\n",
    b"2\r\n{}\r\n0\r\nno colon\r\n\r\n",
]


@pytest.mark.parametrize("chunks", BROKEN_CHUNKS)
@pytest.mark.parametrize("path", ["/v1/verifications", "/v1/tokens/consume", "/verify"])
def test_broken_chunks_are_the_callers_fault(web: Web, path: str, chunks: bytes) -> None:
    content_type = f"Content-Type: {FORM if path == '/verify' else 'application/json'}"
    raw = web.raw(f"POST {path}", content_type, "Transfer-Encoding: chunked", body=chunks)
    answer = web.send(raw, half_close=True)
    assert answer.status == 400
    assert path == "/verify" or answer.code == "malformed_body"


def test_whole_chunks_are_read(web: Web) -> None:
    body = b'{"account_id":"chunked","email":"ada@example.com"}'
    chunks = b"%x\r\n%b\r\n%x;name=value\r\n%b\r\n0\r\n\r\n" % (7, body[:7], len(body) - 7, body[7:])
    headers = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    assert web.call("POST /v1/verifications", *headers, body=chunks).status == 202
    large = b"%x\r\n%b\r\n0\r\n\r\n" % (20_000, b" " * 20_000)
    answer = web.call("POST /v1/verifications", *headers, body=large)
    assert (answer.status, answer.code) == (413, "body_too_large")


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "deflate, chunked", "identity, chunked"])
def test_a_compression_inside_the_chunks_is_refused(web: Web, coding: str) -> None:
    for path in ("/v1/verifications", "/v1/tokens/consume", "/healthz"):
        raw = web.raw(f"POST {path}", f"Transfer-Encoding: {coding}", body=b"2\r\n{}\r\n0\r\n\r\n")
        answer = web.send(raw)
        assert (answer.status, answer.code) == (400, "malformed_body")


PATHS = [
    *("/", "//", "//verify", "/verify//", "/verify/", "/v1//verifications", "//v1/verifications"),
    *("/v1/tokens//consume", "/v1/tokens/consume/", "/v1/verifications/", "/v1/verifications//receipt"),
    *("/healthz/", "//healthz", "/openapi.json/", "/%2F%2Fevil.example", "//evil2.example/%2e%2e"),
    *("/verify", "/healthz", "/v1/verifications", "/v1/tokens/consume"),
]


@pytest.mark.parametrize("path", PATHS)
def test_no_answer_is_a_redirect_or_repeats_the_host(web: Web, path: str) -> None:
    for method in ("GET", "POST", "HEAD", "DELETE"):
        for target in (path, f"http://evil.example{path}"):
            answer = web.call(f"{method} {target}", "Host: evil.example", "X-Forwarded-Host: evil.example")
            assert not 300 <= answer.status < 400
            assert "location" not in answer.headers
            assert "evil.example" not in f"{answer.headers} {answer.body}".replace("evil2.example", "")


def test_a_doubled_slash_is_not_found(web: Web) -> None:
    answer = web.call("POST /v1/tokens//consume", "Content-Type: application/json", body=b'{"token":"x"}')
    assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: evil.example",),
        ("SCRIPT_NAME: /v1",),
        ("SCRIPT_NAME: /elsewhere",),
        ("Script-Name: /v1", "X-Forwarded-Prefix: /evil", "X-Script-Name: /evil"),
        ("PATH_INFO: /healthz", "X-Original-URL: /healthz", "X-Forwarded-Host: evil.example"),
    ],
)
def test_the_location_is_ours_whatever_the_headers_say(web: Web, headers: tuple[str, ...]) -> None:
    answer = web.create(*headers)
    assert answer.status == 202
    assert re.fullmatch(r"/v1/verifications/ver_[0-9a-f]{32}", answer.headers["location"])


@pytest.mark.parametrize(
    "keys", [('"half', 'b"'), ("a", "b"), ("a", "a"), ('"a"', '"b"'), ("a", ""), ('"a', "b", 'c"')]
)
def test_two_key_headers_never_become_one_key(web: Web, keys: tuple[str, ...]) -> None:
    answer = web.create(*(f"Idempotency-Key: {key}" for key in keys))
    assert (answer.status, answer.code) == (400, "invalid_idempotency_key")


@pytest.mark.parametrize("key", ["bare-1", '"quoted"', '"a,b"', r'"a\"b\\c"', '"back\\\\slash"'])
def test_the_key_comes_back_in_a_form_that_is_taken_again(web: Web, key: str) -> None:
    number = next(_numbers)
    body = json.dumps({"account_id": f"echo-{number}", "email": f"echo{number}@example.com"}).encode()
    for replayed in (None, "true"):
        answer = web.call(
            "POST /v1/verifications",
            "Content-Type: application/json",
            f"Idempotency-Key: {key}",
            body=body,
        )
        assert (answer.status, answer.headers.get("idempotent-replayed")) == (202, replayed)
        key = answer.headers["idempotency-key"]


def open_and_send(web: Web, stack: ExitStack, raw: bytes) -> socket.socket:
    """A connection that stays open after `raw`."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", web.port), timeout=30))
    connection.sendall(raw)
    return connection


def test_clients_that_stall_give_their_threads_back(web: Web) -> None:
    half_head = b"POST /v1/verifications HTTP/1.1\r\nHost: x\r\nAuthor"
    half_body = web.raw("POST /v1/verifications", "Content-Type: application/json", body=b"{", length=100)
    with ExitStack() as stack:
        for raw in [half_head, half_body] * 4:  # as many as there are threads
            last = open_and_send(web, stack, raw)
        began = time.monotonic()
        assert web.call("GET /healthz").status == 200
        assert time.monotonic() - began < 15
        assert read_answer(last).code == "malformed_body"


@pytest.mark.parametrize("raw", [b"GET / HTTP/9.9\r\n\r\n", b"GET /healthz HTTP/1.0\r\n\r\n"])
def test_clients_that_do_not_hang_up_hold_up_nobody_for_long(web: Web, raw: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(40):  # gunicorn's own worker waits two seconds for each, one after the other
            open_and_send(web, stack, raw)
        began = time.monotonic()
        assert web.call("GET /healthz").status == 200
        assert time.monotonic() - began < 12


GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/tokens/consume HTTP/1.1\r\nHost: x\r\n"
BEFORE_US = [
    (b"NONSENSE\r\n\r\n", 400),
    (b"GET /healthz HTTP/9.9\r\n\r\n", 400),
    (GET + b"Bad Name: x\r\n\r\n", 400),
    (GET + b"X: a\x01b\r\n\r\n", 400),
    (GET + b"Host: y\r\n\r\n", 400),
    (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    (POST + b"Content-Length: -1\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", 400),
    (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
    (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
    (GET.replace(b"healthz", b"x" * 5000) + b"\r\n", 414),
    (POST + b"Expect: miracles\r\n\r\n", 417),
    (GET + b"X: " + b"x" * 9000 + b"\r\n\r\n", 431),
    (GET + b"".join(b"X-%d: x\r\n" % number for number in range(101)) + b"\r\n", 431),
    (POST + b"Transfer-Encoding: br, chunked\r\n\r\n0\r\n\r\n", 400),
]


@pytest.mark.parametrize(("raw", "status"), BEFORE_US)
def test_what_is_no_http_gets_a_problem_as_well(web: Web, raw: bytes, status: int) -> None:
    answer = web.send(raw)
    assert (answer.status, answer.code) == (status, "headers_too_large" if status == 431 else "bad_request")
    problem = json.loads(answer.body)
    assert problem["request_id"] == answer.headers["x-request-id"]
    line = wait_for(lambda: _line_about(web, problem["request_id"]), "the line in the log")
    assert (line["event"], line["status"], line["logger"]) == ("request_refused", status, "access")


def _line_about(web: Web, request_id: str) -> dict[str, Any] | None:
    for line in web.cluster.output("web").splitlines():
        if request_id in line:
            found: dict[str, Any] = json.loads(line.partition("|")[2])
            return found
    return None


CANARY = b"zqxjkvbp"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
# Requests that two readers might read differently, or that nobody should send: what each may be answered.
AMBIGUOUS = {
    "the canary alone": (CANARY + b"\r\n\r\n", {400}),
    "a method of lower case": (b"get /healthz HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
    "a method that is none": (CANARY + b" /healthz HTTP/1.1\r\nHost: x\r\n\r\n", {400, 405}),
    "a version that is none": (b"GET /%b HTTP/2.0\r\nHost: x\r\n\r\n" % CANARY, {400}),
    "HTTP/0.9": (b"GET /%b\r\n\r\n" % CANARY, {400}),
    "HTTP/1.0 without a host": (b"GET /%b HTTP/1.0\r\n\r\n" % CANARY, {404}),
    "HTTP/1.0 in chunks": (POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\r\n", {400, 415}),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", {200, 400}),
    "a host that is none": (b"GET /%b HTTP/1.1\r\nHost: %b@evil:x/\\\r\n\r\n" % (CANARY, CANARY), {400, 404}),
    "an absolute target": (b"GET http://%b.example/healthz HTTP/1.1\r\nHost: x\r\n\r\n" % CANARY, {200, 404}),
    "a target with a password": (
        b"GET http://%b:%b@x/y HTTP/1.1\r\nHost: x\r\n\r\n" % (CANARY, CANARY),
        {400, 404},
    ),
    "an authority as target": (b"CONNECT %b:443 HTTP/1.1\r\nHost: x\r\n\r\n" % CANARY, {400, 404, 405}),
    "an asterisk as target": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {200, 400, 404}),
    "a fragment in the target": (b"GET /verify#%b HTTP/1.1\r\nHost: x\r\n\r\n" % CANARY, {200, 400, 404}),
    "bytes that are no ASCII": (b"GET /\xff%b\xc0\xae HTTP/1.1\r\nHost: x\r\n\r\n" % CANARY, {400, 404}),
    "a NUL in the target": (b"GET /%b\0 HTTP/1.1\r\nHost: x\r\n\r\n" % CANARY, {400, 404}),
    "a tab in the request line": (b"GET\t/%b HTTP/1.1\r\nHost: x\r\n\r\n" % CANARY, {400, 404}),
    "a colon before nothing": (GET + b": %b\r\n\r\n" % CANARY, {400}),
    "a space before the colon": (GET + b"X : %b\r\n\r\n" % CANARY, {400}),
    "a folded header": (GET + b"X: a\r\n %b\r\n\r\n" % CANARY, {400}),
    "a line feed in a header": (GET + b"X: a\nHost: %b\r\n\r\n" % CANARY, {200, 400}),
    "a carriage return in a header": (GET + b"X: a\r%b\r\n\r\n" % CANARY, {400}),
    "a NUL in a header": (GET + b"X: %b\0\r\n\r\n" % CANARY, {400}),
    "a header that is no ASCII": (GET + b"X-\xc3\xbc: %b\r\n\r\n" % CANARY, {400}),
    "a length and chunks": (POST + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n0\r\n\r\n", {400}),
    "chunks and a length": (POST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n", {400}),
    "two chunked": (POST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n", {400}),
    "chunked and a space": (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", {400}),
    "xchunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400}),
    "chunked, identity": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", {400}),
    "chunked behind a form feed": (POST + b"Transfer-Encoding: \x0cchunked\r\n\r\n0\r\n\r\n", {400}),
    "two equal lengths": (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", {400}),
    "two lengths in one": (POST + b"Content-Length: 2, 2\r\n\r\n{}", {400}),
    "a length with a plus": (POST + b"Content-Length: +2\r\n\r\n{}", {400}),
    "a length in hex": (POST + b"Content-Length: 0x2\r\n\r\n{}", {400}),
    "a length with an underscore": (POST + b"Content-Length: 1_0\r\n\r\n{}", {400}),
    "a length of other digits": (POST + b"Content-Length: \xd9\xa2\r\n\r\n{}", {400}),
    "an endless length": (POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}", {400, 413}),
    "a canary for a length": (POST + b"Content-Length: %b\r\n\r\n{}" % CANARY, {400}),
    "a length with an underscore in its name": (POST + b"Content_Length: 2\r\n\r\n", {400, 415}),
    "a chunk with a sign": (POST + CHUNKED + b"\r\n+2\r\n{}\r\n0\r\n\r\n", {400, 415}),
    "a chunk in 0x": (POST + CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n", {400, 415}),
    "a chunk's canary": (POST + CHUNKED + b"\r\n%b\r\n{}\r\n0\r\n\r\n" % CANARY, {400, 415}),
    "expectations that nobody has": (POST + b"Expect: %b\r\n\r\n" % CANARY, {417}),
    "two content types": (POST + b"Content-Type: a/b\r\nContent-Type: application/json\r\n\r\n", {400}),
    "many canaries": (
        GET + b"".join(b"X-%b-%d: %b\r\n" % (CANARY, n, CANARY) for n in range(200)) + b"\r\n",
        {431},
    ),
    "a long canary": (GET + b"X: " + CANARY * 1200 + b"\r\n\r\n", {431}),
    "a long path": (b"GET /" + CANARY * 600 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {414}),
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_what_two_might_read_differently_is_answered_once_and_not_repeated(web: Web, kind: str) -> None:
    raw, statuses = AMBIGUOUS[kind]
    answer = web.send(raw, half_close=True)
    assert answer.status in statuses
    assert answer.status == 200 or answer.headers["content-type"] == "application/problem+json"
    assert CANARY.decode() not in f"{answer.headers}{answer.body}".lower()
    assert "HTTP/1." not in answer.body, "one request, one answer"
    assert web.call("GET /healthz").status == 200


def test_what_comes_behind_a_refused_request_is_not_read_as_the_next(web: Web) -> None:
    behind = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for first in (
        POST + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 20000\r\n\r\n",
    ):
        answer = web.send(first + behind, half_close=True)
        assert answer.status in {400, 413}
        assert '"ok"' not in answer.body


def test_a_refusal_that_leaves_a_body_unread_says_that_the_connection_ends(web: Web) -> None:
    raw = POST + b"Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n" + b" " * 200_000
    answer = web.send(raw)
    assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_a_client_that_waits_to_be_told_to_go_on_is_told(web: Web) -> None:
    body = b'{"token": "x"}'
    head = POST + b"Content-Type: application/json\r\nExpect: 100-continue\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", web.port), timeout=20) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        assert connection.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert "verification_invalid" in read_answer(connection).body
