"""G9: no token, API key, full address, body of a mail or secret of ours in anything that is written beside database and mail.

One run of the whole system with values that cannot be mistaken (`tests.support.driven`), then a search in every byte.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import app
from dev.postgres import Postgres
from dev.redis import Redis
from tests.support import observed
from tests.support.calls import calls, path_of
from tests.support.canaries import Canary, Haystack, around, found, word
from tests.support.cluster import Cluster, wait_for
from tests.support.driven import Driven, mail_server

FLASK = f"{shlex.quote(sys.executable)} -m flask --app app"
_SECONDS = 30
MAILS = ("taken", "refused", "strange", "deferred", "content", "garbled", "queued")
QUOTING = """
CREATE FUNCTION quote_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF position('poison' IN NEW::text) > 0 THEN
        RAISE NOTICE 'have %', NEW::text;
        RAISE EXCEPTION 'cannot keep %', NEW::text USING DETAIL = NEW::text, HINT = NEW::text;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER quote BEFORE INSERT ON verifications FOR EACH ROW EXECUTE FUNCTION quote_row();
CREATE TRIGGER quote BEFORE INSERT ON clients FOR EACH ROW EXECUTE FUNCTION quote_row();
"""


@pytest.fixture(scope="module")
def driven(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driven]:
    folder = tmp_path_factory.mktemp("redaction")
    url = postgres.create_database("redaction", template="migrated")
    with Redis(folder / "redis") as redis:
        driven = Driven(url, redis, folder)
        with (
            observed.BrokerMonitor(redis.url()) as monitor,
            mail_server(driven.smtp_password) as mail,
            Cluster(driven.environment(mail.port)) as cluster,
        ):
            drive(driven, cluster)
        for child in cluster.children:
            driven.write(child.name, cluster.output(child.name).encode())
        driven.write("what the broker was told", bytes(monitor.said))
        driven.write("the broker's log", redis.log.read_bytes())
        driven.write("files left behind", observed.files_under(driven.temporary))
        driven.write("dump", observed.dump(postgres, url, cluster.environment))
        driven.write("the database's log", postgres.log.read_bytes())
    postgres.drop_database("redaction")
    yield driven


def drive(driven: Driven, cluster: Cluster) -> None:
    """Everything, in the order of a busy day."""
    made = driven.run(cluster, [(f"{FLASK} clients create host{n} --json", {}) for n in range(2)])
    driven.sources.pop("commands")  # the one place where a key is shown
    keys = [driven.know("an API key", json.loads(said.splitlines()[1])["api_key"]) for said in made]
    driven.start(cluster)
    for log_format, key in zip(driven.webs, keys, strict=True):
        request_mails(driven, log_format, key)
    for log_format, key in zip(driven.webs, keys, strict=True):
        use_and_misuse(driven, log_format, key)
    break_the_database(driven, keys[0])
    driven.look_at_processes(cluster)
    look_at_flower(driven)
    run_commands(driven, cluster, keys[0])
    driven.write("what the broker holds", observed.broker_contents(driven.redis.url()))


def request_mails(driven: Driven, log_format: str, key: str) -> None:
    """One mail for each thing a provider may answer, and one that cannot be rendered."""
    with driven.client(log_format, key) as api:
        made = {}
        for kind in MAILS:
            body = driven.person(kind, log_format)
            made[kind] = body | driven.heard(api.post("/v1/verifications", json=body)).json()
            driven.token(made[kind]["verification_id"])
        driven.people[log_format] = made


def use_and_misuse(driven: Driven, log_format: str, key: str) -> None:
    """Read, confirm, revoke; and put keys, tokens and addresses where they do not belong, in every call there is."""
    made = driven.people[log_format]
    with driven.client(log_format, key) as api:
        settle(api, made)
        for each in made.values():
            path = f"/v1/verifications/{each['verification_id']}"
            for accept in ("application/json", "text/plain"):
                driven.heard(api.get(f"{path}/receipt", headers={"Accept": accept}))
            driven.heard(api.get(path))
        token = driven.token(made["taken"]["verification_id"])
        for written in (token, token.lower(), token.replace("-", " ")):
            driven.heard(api.post("/v1/tokens/consume", json={"token": written}))
        for action, kind in (
            ("confirm", "taken"),
            ("revoke", "deferred"),
            ("confirm", "queued"),
            ("x", "content"),
        ):
            form = {"token": driven.token(made[kind]["verification_id"]), "action": action}
            driven.heard(api.post("/verify", data=form))
    for value in misplaced(driven, made, key):
        with driven.client(log_format, key) as api:
            everywhere(driven, api, value)
        for raw in broken_http(value):
            driven.raw(driven.webs[log_format], raw)


def settle(api: httpx.Client, made: dict[str, Any]) -> None:
    """Wait until each mail has been tried."""
    for each in made.values():
        receipt = f"/v1/verifications/{each['verification_id']}/receipt"
        wait_for(
            lambda path=receipt: any(a["outcome"] for a in api.get(path).json()["attempts"]), "an attempt"
        )


def misplaced(driven: Driven, made: dict[str, Any], key: str) -> tuple[str, ...]:
    token = driven.token(made["garbled"]["verification_id"])
    return (token, token.replace("-", "").lower(), key, made["taken"]["email"])


def everywhere(driven: Driven, api: httpx.Client, value: str) -> None:
    """`value` in path, query string, headers, cookie and body of every call."""
    quoted = quote(value, safe="")
    headers = dict.fromkeys(
        ("X-Request-ID", "User-Agent", "Referer", "Cookie", "Idempotency-Key", "X-Forwarded-For", "Accept"),
        value,
    )
    bodies: tuple[dict[str, Any], ...] = (
        {"json": {value: value, "account_id": [value], "email": value, "token": value}},
        {
            "json": {
                "token": f"{value}{value}",
                "purpose": value,
                "locale": value,
                "return_url": f"https://x/{value}",
            }
        },
        {
            "content": f'{{"a": "{value}", "a": {value}'.encode(),
            "headers": {"Content-Type": "application/json"},
        },
        {"data": {"token": f"{value}.", "action": value, value: value}},
        {"content": value.encode() * 1500, "headers": {"Content-Type": value}},
    )
    for method, rule in calls():
        path = path_of(rule, quoted)
        target = f"{path}?{quoted}={quoted}&cursor={quoted}&limit={quoted}&after={quoted}"
        for body in bodies if method in {"POST", "PUT", "PATCH"} else ({},):
            given = {**headers, **body.get("headers", {})}
            driven.heard(api.request(method, target, **{**body, "headers": given}))
        driven.heard(api.request(method, target, headers={"Authorization": f"Bearer {value}"}))
    for path in (
        f"/{quoted}",
        f"/verify/{quoted}",
        f"/verify;{quoted}",
        f"/%25{quoted}",
        f"/v1/verifications/ver_{quoted}",
    ):
        driven.heard(api.request("DELETE", path, headers={**headers, "Authorization": value}))
        driven.heard(api.get(path, headers=headers))


def broken_http(value: str) -> Iterator[bytes]:
    """What gunicorn refuses before our code runs, with `value` in each place."""
    text = value.encode()
    good = b"POST /v1/tokens/consume HTTP/1.1\r\nHost: x\r\n"
    yield from (
        b"%b\r\n\r\n" % text,
        b"%b / HTTP/1.1\r\nHost: x\r\n\r\n" % text,
        b"GET /%b HTTP/9.9\r\nHost: x\r\n\r\n" % text,
        b"GET /healthz %b\r\n\r\n" % text,
        b"GET /%b HTTP/1.1\r\nHost: x\r\nBad Name %b: %b\r\n\r\n" % (text, text, text),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: %b\x01\r\n\r\n" % text,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\r\n %b\r\n\r\n" % text,
        b"GET /healthz HTTP/1.1\r\nHost: %b\r\nHost: %b\r\n\r\n" % (text, text),
        b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (text * 300),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (text * 500),
        b"GET http://%b:%b@x/%b HTTP/1.1\r\nHost: x\r\n\r\n" % (text, text, text),
        good + b"Expect: %b\r\n\r\n" % text,
        good + b"Content-Length: %b\r\n\r\n" % text,
        good + b"Transfer-Encoding: %b\r\n\r\n" % text,
        good + b"Transfer-Encoding: chunked\r\n\r\n%b\r\n%b\r\n0\r\n\r\n" % (text, text),
        good
        + b"Transfer-Encoding: chunked\r\n\r\n2;%b\x01\r\n{}\r\n0\r\n%b: %b\r\n\r\n" % (text, text, text),
        good + b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n%b" % text,
    )


def break_the_database(driven: Driven, key: str) -> None:
    """Errors that quote rows, in web and worker, and a row that no mail can be made of."""
    driven.query(QUOTING)
    for log_format in driven.webs:
        with driven.client(log_format, key) as api:
            answer = driven.heard(api.post("/v1/verifications", json=driven.person("poison", log_format)))
            assert answer.status_code == 500, "the trigger is there to be met"
            crack(driven, api)


def crack(driven: Driven, api: httpx.Client) -> None:
    """While a mail waits for its next attempt, its address becomes one that none can be made of."""
    made = driven.heard(api.post("/v1/verifications", json=driven.person("deferred", "cracked"))).json()
    settle(api, {"cracked": made})
    driven.query(
        "UPDATE verifications SET email = %s || chr(10) || '@x.example' WHERE correlation_id = %s",
        driven.know("the cracked address", word("cracked")),
        made["correlation_id"],
    )
    wait_for(
        lambda: driven.query(
            """
            SELECT 1 FROM delivery_attempts a JOIN email_outbox o ON o.id = a.delivery_id
            JOIN verifications v ON v.id = o.verification_id
            WHERE a.error_code = 'internal_error' AND v.correlation_id = %s
            """,
            made["correlation_id"],
        ),
        "a mail that cannot be rendered",
    )


def look_at_flower(driven: Driven) -> None:
    """Its pages and its API, as an operator sees them; and what a stranger gets."""
    base = f"http://127.0.0.1:{driven.flower_port}"
    with httpx.Client(base_url=base, auth=("operator", driven.flower_password), timeout=_SECONDS) as flower:
        tasks = wait_for(lambda: flower.get("/api/tasks").json(), "tasks in Flower")
        workers = wait_for(lambda: flower.get("/api/workers?refresh=1").json(), "workers in Flower")
        pages = [
            "/",
            "/workers",
            "/tasks",
            "/broker",
            "/metrics",
            "/api/tasks",
            "/api/workers?refresh=1",
            "/api/task/types",
        ]
        pages += [f"/worker/{name}" for name in workers]
        pages += [page for uuid in list(tasks)[:5] for page in (f"/task/{uuid}", f"/api/task/info/{uuid}")]
        pages += [
            "/api/queues/length",
            "/tasks/datatable?draw=1&start=0&length=100&search[value]=&order[0][column]=0&order[0][dir]=asc&columns[0][data]=name",
        ]
        for page in pages:
            answer = flower.get(page)
            driven.write(
                "Flower",
                repr((page, answer.status_code, answer.headers.multi_items())).encode() + answer.content,
            )
    for made in driven.people.values():
        for path in ("tasks", "api/tasks", made["taken"]["email"]):
            asked = f"{base}/{path}?token={made['taken']['email']}"
            answer = httpx.get(asked, auth=(made["taken"]["email"], "wrong"), timeout=_SECONDS)
            assert answer.status_code in {401, 404}


def run_commands(driven: Driven, cluster: Cluster, key: str) -> None:
    """Commands that work, that are refused, that are misused; and every process with senseless settings."""
    made = driven.people["json"]
    token, address = driven.token(made["content"]["verification_id"]), made["taken"]["email"]
    for arguments in commands(made, key, token, address):
        done = app.application.test_cli_runner().invoke(
            args=arguments, env={"DATABASE_URL": driven.database_url}
        )
        driven.write("commands", f"exit {done.exit_code}\n{done.output}".encode())
    poison = driven.know("the poisonous client's name", word("poison"))
    of_their_own: list[tuple[str, dict[str, str]]] = [
        (f"{FLASK} clients create {poison}", {}),
        (f"{FLASK} keys revoke {key}x", {}),
        (f"{FLASK} outbox show {made['taken']['delivery_id']} --json", {}),
    ]
    driven.run(cluster, [*of_their_own, *senseless_starts(driven, cluster, address)])


def senseless_starts(driven: Driven, cluster: Cluster, address: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each process with a setting that it cannot take, all of them secrets or next to one."""
    wrong = {
        "DATABASE_URL": driven.database_url.replace("postgresql://", "mysql://"),
        "REDIS_URL": driven.redis.url().replace("redis://", "http://"),
        "TOKEN_KEYS": f"k1:{driven.ring}!",
        "MAIL_URL": f"smtp://mailer:{driven.smtp_password}@host@example:x",
        "SECRET_KEY": driven.secret_key[:15],
        "MAIL_FROM": f"{driven.sender} <{address}> <{address}>",
        "PUBLIC_URL": f"ftp://mailer:{driven.smtp_password}@example.com",
        "SWEEP_INTERVAL_SECONDS": driven.smtp_password,
        "LOG_FORMAT": driven.smtp_password,
    }
    starts = {
        "web": ("DATABASE_URL", "SECRET_KEY", "TOKEN_KEYS", "PUBLIC_URL"),
        "worker": ("MAIL_URL", "MAIL_FROM"),
        "beat": ("REDIS_URL", "SWEEP_INTERVAL_SECONDS"),
        "flower": ("LOG_FORMAT",),
    }
    for kind, names in starts.items():
        command = cluster.commands[kind].replace("0.0.0.0", "127.0.0.1")
        for name in names:
            # Ended by force only if it should start in spite of it.
            yield f"PORT=1 timeout -s KILL 20 {command}", {name: wrong[name]}
    yield f"{FLASK} clients list", {"DATABASE_URL": wrong["DATABASE_URL"]}


def commands(made: dict[str, Any], key: str, token: str, address: str) -> Iterator[list[str]]:
    for line in (
        "clients list",
        "clients list --json",
        "outbox stats",
        "outbox list --json",
        "release --json",
    ):
        yield line.split()
    for each in made.values():
        yield ["outbox", "show", each["delivery_id"]]
    for value in (key, token, address):
        yield ["clients", "disable", value]
        yield ["clients", "create", f"{value}/"]
        yield ["clients", value]
        yield ["clients", "create", "x", "--return-url", f"https://{value}@x"]
        yield ["clients", "create", "x", f"--{value}"]
        yield ["keys", "create", value]
        yield ["keys", "revoke", f"{value}x"]
        yield ["keys", "revoke", "--json", "x", value]
        yield ["outbox", "list", "--status", value]
        yield ["outbox", "list", "--limit", value]
        yield ["outbox", "show", value]


# What each source must have, so that a search in it means something: a text and how often at least.
EXERCISED = {
    "web-json": ('"event": "request"', 200),
    "web-console": ("request", 200),
    "worker-json": ("settled", 1),
    "worker-console": ("settled", 1),
    "beat": ("celery beat", 1),
    "flower": ("Visit me", 1),
    "answers": ("problem", 200),
    "commands": ("exit 2", 20),
    "command lines": ("gunicorn", 2),
    "open files": ("", 1),
    "Flower": ("countersign.", 10),
    "what the broker was told": ("countersign.sweep", 2),
    "what the broker holds": ("kombu", 1),
    "the broker's log": ("Ready to accept connections", 1),
    "dump": ("INSERT INTO", 50),
}


@pytest.mark.parametrize("source", EXERCISED)
def test_every_source_has_something_to_say(driven: Driven, source: str) -> None:
    text, count = EXERCISED[source]
    assert driven.sources[source].decode(errors="replace").count(text) >= count


def test_the_errors_that_quote_rows_did_happen(driven: Driven) -> None:
    for log_format in driven.webs:
        assert b"RaiseException" in driven.sources[f"web-{log_format}"]
    raised = [driven.sources[f"worker-{name}"].count(b"adapter_raised") for name in driven.webs]
    assert sum(raised) >= 2
    assert b"RaiseException" in driven.sources["commands"]


# Whoever asked for it reads the account's id and the metadata there: callers in answers, operators in a receipt.
THEIR_OWN = ("account id", "metadata")
SHOW_THEIR_OWN = ("answers", "commands")


def test_nothing_that_must_not_be_seen_is_anywhere_outside_database_and_mail(driven: Driven) -> None:
    outside = {
        name: Haystack(bytes(written))
        for name, written in driven.sources.items()
        if name not in {"dump", "the database's log"}
    }
    seen = []
    for name, source in outside.items():
        searched = [c for c in driven.canaries if name not in SHOW_THEIR_OWN or not is_their_own(c)]
        seen += found(searched, {name: source})
        seen += [around(canary, source) for canary in searched if canary.is_in(source)]
    assert not seen, "\n".join(seen)


def is_their_own(canary: Canary) -> bool:
    return any(kind in canary.what for kind in THEIR_OWN)


def test_the_database_holds_no_token_no_key_and_no_secret(driven: Driven) -> None:
    """Addresses, account ids and metadata are what it is for; nothing else."""
    personal = ("address", "account id", "metadata", "client's name")
    secret = [canary for canary in driven.canaries if not any(kind in canary.what for kind in personal)]
    sources = {name: Haystack(bytes(driven.sources[name])) for name in ("dump", "the database's log")}
    assert found(secret, sources) == []
    addresses = [canary for canary in driven.canaries if "taken address" in canary.what]
    assert len(found(addresses, sources)) >= len(addresses), "the search does find what is there"


@pytest.mark.parametrize(
    "source", ["web-json", "worker-console", "Flower", "what the broker was told", "command lines"]
)
def test_the_search_fails_on_anything_planted(driven: Driven, source: str) -> None:
    written = bytes(driven.sources[source])[-20_000:]
    half = len(written) // 2
    for canary in driven.canaries:
        planted = written[:half] + canary.value.lower().encode() + written[half:]
        assert found([canary], {source: Haystack(planted)}) == [f"{canary.what} in {source}"]
