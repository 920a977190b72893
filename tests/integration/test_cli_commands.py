"""The commands as people and scripts run them: real processes, exit codes, data on stdout, words on stderr."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import app
from db import clients, ids, leases
from db.clients import Client
from db.delivery_state import State
from db.errors import InvalidKey
from db.session import Database
from dev.postgres import Postgres
from tests.factories import Factory, terms

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str) -> Run:
    """`flask --app app …` in this process, with DATABASE_URL."""

    def call(*arguments: str, **environment: str) -> Result:
        given = {"DATABASE_URL": database_url, **environment}
        return app.application.test_cli_runner().invoke(args=arguments, env=given, catch_exceptions=False)

    return call


@pytest.fixture
def run_alone(database_url: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`flask --app app …` in a process of its own, with DATABASE_URL and nothing else set."""

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flask", "--app", "app", *arguments],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "DATABASE_URL": database_url, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def data(done: Result) -> Any:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def whose(database: Database, key: str) -> Client:
    with database.transaction() as tx:
        return clients.authenticate(tx, key)


def test_a_process_needs_nothing_but_the_database(run_alone: Callable[..., Any]) -> None:
    made = run_alone("clients", "create", "shop", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["name"] == "shop"
    refused = run_alone("clients", "create", "shop", "--json")
    assert (refused.returncode, refused.stdout) == (1, "")
    unreachable = run_alone("release", DATABASE_URL="postgresql://postgres@127.0.0.1:1/nowhere")
    assert (unreachable.returncode, "Traceback" in unreachable.stderr) == (3, False)


def test_a_client_is_made_once_and_its_key_works(run: Run, database: Database) -> None:
    made = data(run("clients", "create", "shop", "--return-url", "https://host.example/", "--json"))
    assert set(made) == {"client_id", "name", "api_key"}
    known = whose(database, made["api_key"])
    assert (ids.public("cli", known.id), known.name) == (made["client_id"], "shop")
    assert known.return_urls == ("https://host.example/",)
    again = run("clients", "create", "shop", "--json")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "there is a client named shop already" in again.stderr


def test_without_json_the_key_alone_is_on_stdout(run: Run, database: Database) -> None:
    done = run("clients", "create", "shop")
    assert re.fullmatch(r"cs_live_[a-z0-9]{10}_[a-z0-9]{32}\n", done.stdout)
    assert "not shown again" in done.stderr


def test_clients_are_listed_disabled_and_keys_made_and_revoked(run: Run, database: Database) -> None:
    first = clients.create(database, "shop")
    second = data(run("keys", "create", "shop", "--json"))["api_key"]
    assert data(run("clients", "list", "--json"))[0]["keys"] == 2
    assert data(run("keys", "revoke", first.key[:18], "--json"))["revoked_at"]
    with pytest.raises(InvalidKey):
        whose(database, first.key)
    assert whose(database, second).name == "shop"
    assert data(run("clients", "disable", "shop", "--json"))["disabled_at"]
    listed = data(run("clients", "list", "--json"))
    assert [(c["name"], c["keys"], c["disabled_at"] is not None) for c in listed] == [("shop", 1, True)]
    table = run("clients", "list").stdout
    assert "shop" in table
    assert first.key not in table


def test_a_test_client_gets_test_keys_and_is_listed_as_one(run: Run) -> None:
    keys = [
        data(run("clients", "create", "ci", "--test", "--json"))["api_key"],
        data(run("keys", "create", "ci", "--json"))["api_key"],
    ]
    assert all(key.startswith("cs_test_") for key in keys)
    assert data(run("keys", "revoke", keys[0][:18], "--json"))["revoked_at"]
    data(run("clients", "create", "shop", "--json"))
    listed = data(run("clients", "list", "--json"))
    assert [(client["name"], client["is_test"]) for client in listed] == [("ci", True), ("shop", False)]
    head, ci, shop = run("clients", "list").stdout.splitlines()
    column = head.index("TEST")
    assert (ci[column:].split()[0], shop[column:].split()[0]) == ("yes", "-")


def test_the_outbox_is_counted_listed_and_shown(run: Run, make: Factory) -> None:
    failed, waiting = make.in_state(State.FAILED), make.in_state(State.PENDING)
    stats = data(run("outbox", "stats", "--json"))
    assert stats["counts"] == {**dict.fromkeys(State, 0), "failed": 1, "pending": 1}
    assert stats["oldest_due_seconds"] >= 0
    listed = data(run("outbox", "list", "--json"))
    assert [item["id"] for item in listed] == [ids.public("dlv", waiting), ids.public("dlv", failed)]
    only = data(run("outbox", "list", "--status", "failed", "--json"))
    assert [item["failure_code"] for item in only] == ["mailbox_unavailable"]
    by_delivery = data(run("outbox", "show", ids.public("dlv", failed), "--json"))
    by_verification = data(run("outbox", "show", by_delivery["verification"]["verification_id"], "--json"))
    assert by_delivery["delivery"] == by_verification["delivery"]
    text = run("outbox", "show", ids.public("dlv", failed)).stdout
    assert "mailbox_unavailable" in text
    assert "person@example.com" not in text


def test_the_oldest_unknown_is_named(run: Run, make: Factory) -> None:
    oldest, _ = make.unknown(), make.unknown()
    name = ids.public("dlv", oldest.delivery_id)
    assert f"({name})" in run("outbox", "stats").stdout
    assert data(run("outbox", "stats", "--json"))["oldest_unknown_id"] == name


@pytest.mark.parametrize("group", ["keys", "clients", "outbox", "suppressions"])
def test_a_group_without_a_command_shows_its_help_in_lines(run: Run, group: str) -> None:
    done = run(group)
    assert done.exit_code == 2
    assert f"Usage: app {group}" in done.output
    assert "\n  list" in done.output


def test_without_a_database_url_the_way_beside_make_run_is_shown(run: Run) -> None:
    assert ". .run/env" in run("clients", "list", DATABASE_URL="").stderr
    assert ". .run/env" not in run("clients", "list", DATABASE_URL="mysql://x").stderr


def test_the_list_says_whose_mail_it_is_and_can_be_narrowed(run: Run, make: Factory) -> None:
    accepted, waiting = make.in_state(State.ACCEPTED), make.in_state(State.PENDING)
    make.execute("UPDATE email_outbox SET last_error = 'connection_refused'")
    listed = data(run("outbox", "list", "--json"))
    assert {item["email_masked"] for item in listed} == {"p***@example.com"}
    head, *rows = run("outbox", "list").stdout.splitlines()
    assert [("connection_refused" in row, listed[0]["client"] in row) for row in rows] == [
        (True, True),
        (False, True),
    ]
    assert head.split()[:2] == ["DELIVERY", "CREATED"]
    assert ids.public("ver", make.row(accepted)["verification_id"]) in rows[1]

    def found(*options: str) -> list[str]:
        return [item["id"] for item in data(run("outbox", "list", "--json", *options))]

    both = [ids.public("dlv", waiting), ids.public("dlv", accepted)]
    account = make.one("SELECT external_id FROM accounts ORDER BY id LIMIT 1")["external_id"]
    assert found("--client", listed[0]["client"]) == found("--since", "2h") == both
    assert found("--client", "nobody") == found("--since", "2999-01-01") == []
    assert 1 <= len(found("--account", account)) <= len(both)
    assert found("--account", "nobody") == []
    assert run("outbox", "list", "--since", "yesterday").exit_code == 2


def test_a_client_is_enabled_again_and_each_answer_says_what_changed(run: Run, database: Database) -> None:
    key = clients.create(database, "shop").key
    for word, changed in (("disable", True), ("disable", False), ("enable", True), ("enable", False)):
        done = run("clients", word, "shop")
        assert (f"shop is {word}d" in done.stdout, "already" in done.stdout) == (True, not changed)
        assert data(run("clients", word, "shop", "--json"))["changed"] is False
    assert whose(database, key).name == "shop"


def test_return_urls_are_shown_added_and_removed(run: Run) -> None:
    one, two = "https://one.example/a", "https://two.example/b"
    data(run("clients", "create", "shop", "--return-url", one, "--json"))
    assert run("clients", "return-urls", "shop").stdout == f"{one}\n"
    assert data(run("clients", "return-urls", "shop", "--add", two, "--json"))["return_urls"] == [one, two]
    again = run("clients", "return-urls", "shop", "--add", two)
    assert "nothing was changed" in again.stderr
    assert two in run("clients", "list").stdout
    assert data(run("clients", "return-urls", "shop", "--remove", one, "--json"))["return_urls"] == [two]
    missing = run("clients", "return-urls", "shop", "--remove", one)
    assert (missing.exit_code, "nothing was changed" in missing.stderr) == (1, True)


def test_keys_are_listed_by_their_beginnings_and_the_last_one_is_not_lost_unnoticed(
    run: Run, database: Database
) -> None:
    first = clients.create(database, "shop").key
    second = data(run("keys", "create", "shop", "--json"))["api_key"]
    listed = run("keys", "list", "shop").stdout
    assert [first[:18] in listed, second[:18] in listed] == [True, True]
    assert first[18:] not in listed
    assert [key["revoked_at"] for key in data(run("keys", "list", "shop", "--json"))] == [None, None]

    done = run("keys", "revoke", first[:18])
    assert (done.stdout, done.stderr) == (f"{first[:18]} of shop is revoked\n", "")
    again = run("keys", "revoke", first)
    assert "already, since" in again.stdout
    assert first not in again.output
    last = run("keys", "revoke", second[:18])
    assert "no working key left" in last.stderr
    assert data(run("keys", "revoke", second[:18], "--json"))["keys"] == 0


def test_a_suppressed_mailbox_gets_no_mail_however_it_is_written(run: Run, make: Factory) -> None:
    shop = make.one("SELECT name FROM clients WHERE id = %s", make.client())["name"]
    done = run("suppressions", "add", shop, "Person+Tag@example.com", "--reason", "asked for it")
    assert (done.exit_code, done.stdout) == (0, f"p***@example.com of {shop} is suppressed\n")
    assert "already" in run("suppressions", "add", shop, "person@example.com", "--reason", "again").stdout
    (listed,) = data(run("suppressions", "list", "--email", "PERSON@example.com", "--json"))
    assert (listed["client"], listed["email_masked"], listed["reason"]) == (shop, "p***@example.com", "again")
    assert data(run("suppressions", "list", "--email", "other@example.com", "--json")) == []

    waiting = make.waiting().delivery_id
    assert leases.claim(make.database, terms()) == []
    assert make.row(waiting)["failure_code"] == "suppressed"

    gone = run("suppressions", "remove", shop, "person@example.com")
    assert gone.exit_code == 0, gone.stderr
    assert make.leased()
    again = run("suppressions", "remove", shop, "person@example.com")
    assert (again.exit_code, "nothing was changed" in again.stderr) == (1, True)


def test_a_suppression_can_end_by_itself(run: Run, make: Factory) -> None:
    shop = make.one("SELECT name FROM clients WHERE id = %s", make.client())["name"]
    options = ("--reason", "full for now", "--days", "2", "--json")
    added = data(run("suppressions", "add", shop, "person@example.com", *options))
    assert added["expires_at"] > added["created_at"]
    make.execute("UPDATE suppressions SET expires_at = clock_timestamp()")
    assert make.leased()


REFUSED = [
    (("clients", "enable", "nobody"), 1),
    (("clients", "return-urls", "nobody"), 1),
    (("clients", "return-urls", "nobody", "--add", "javascript:x"), 2),
    (("keys", "list", "nobody"), 1),
    (("suppressions", "add", "nobody", "ada@example.com", "--reason", "x"), 1),
    (("suppressions", "add", "nobody", "ada@example.com"), 2),
    (("suppressions", "add", "nobody", "ada@example.com", "--reason", "ada@example.com"), 2),
    (("suppressions", "remove", "nobody", "no address"), 2),
    (("suppressions", "list", "--client", "nobody"), 1),
    (("clients", "disable", "nobody"), 1),
    (("keys", "create", "nobody"), 1),
    (("keys", "revoke", "cs_live_aaaaaaaaaa"), 1),
    (("outbox", "show", f"dlv_{'0' * 32}"), 1),
    (("outbox", "show", "nonsense"), 2),
    (("outbox", "show", f"cli_{'0' * 32}"), 2),
    (("clients", "create", "\udcff"), 2),
    (("keys", "revoke", "\udcff"), 2),
    (("outbox", "show", "\udcff"), 2),
    (("outbox", "\udcff"), 2),
    (("release", "\udcff"), 2),
    (("clients", "create"), 2),
    (("clients", "create", "a/b"), 2),
    (("clients", "create", "a", "--return-url", "javascript:x"), 2),
    (("outbox", "list", "--status", "nonsense"), 2),
    (("outbox", "list", "--limit", "0"), 2),
    (("nonsense",), 2),
]


@pytest.mark.parametrize(("arguments", "code"), REFUSED)
def test_what_cannot_be_done_has_an_exit_code_and_one_clear_line(
    run: Run, arguments: tuple[str, ...], code: int
) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("postgresql://postgres@127.0.0.1:1/nowhere", 3, "DATABASE_URL"),
        ("", 2, "DATABASE_URL"),
        ("mysql://x", 2, "DATABASE_URL"),
        ("postgresql://u:secret pw@h/x", 2, "DATABASE_URL"),
        ("postgresql://u:se%zzcret@h/x", 2, "DATABASE_URL"),
        ("postgresql://u:secret@h/x?bogus=1", 2, "DATABASE_URL"),
        ("postgresql://u:secret@[::1/x", 2, "DATABASE_URL"),
    ],
)
def test_an_unreachable_database_and_a_bad_setting_are_told_apart(
    run: Run, url: str, code: int, words: str
) -> None:
    for command in (("clients", "list"), ("release",)):
        done = run(*command, DATABASE_URL=url)
        assert done.exit_code == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert "cret" not in done.stderr


KEY = "cs_live_6sh75p8bnz_88729g4tq7xr7bgkz4p5i5xi3wkjnuip"


@pytest.mark.parametrize("value", [KEY, "9WFX-T3C9-RKH3-A2MZ", "ada@example.com"])
@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ("clients", "{}"),
            ("clients", "create", "x", "--{}"),
            ("clients", "create", "x/", "{}"),
            ("keys", "revoke", "{}x"),
        ),
        *(
            ("keys", "revoke", "x", "{}"),
            ("outbox", "list", "--status", "{}"),
            ("outbox", "list", "--limit", "{}"),
        ),
        *(("outbox", "show", "{}"), ("clients", "disable", "{}"), ("keys", "create", "{}")),
        *(("keys", "list", "{}"), ("suppressions", "remove", "x", "{}"), ("outbox", "list", "--since", "{}")),
        ("clients", "return-urls", "{}", "--remove", "{}"),
    ],
    ids=" ".join,
)
def test_what_is_refused_is_not_repeated_where_it_may_be_a_secret(
    run: Run, arguments: tuple[str, ...], value: str
) -> None:
    done = run(*(argument.format(value) for argument in arguments))
    assert done.exit_code in {1, 2}
    assert "Error" in done.stderr
    assert value not in done.output
    assert KEY[-32:] not in done.output


def test_a_key_where_a_command_belongs_is_not_repeated(run_alone: Callable[..., Any]) -> None:
    done = run_alone("cs_live_abcdefghij_abcdefghijkmnpqrstuvwxyz23456789")
    assert done.returncode == 2
    assert "cs_live" not in done.stdout + done.stderr
    assert "no such command" in done.stderr


def test_a_read_only_database_is_called_that(run: Run, make: Factory, database_url: str) -> None:
    name = database_url.rpartition("/")[2].partition("?")[0]
    make.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        done = run("clients", "create", "shop")
        assert data(run("clients", "list", "--json")) == []
    finally:
        _writable(make, name)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "read-only" in done.stderr
    assert "Traceback" not in done.stderr


def _writable(make: Factory, name: str) -> None:
    with make.database.transaction() as tx:
        tx.execute("SET TRANSACTION READ WRITE")
        tx.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')


@pytest.mark.parametrize(
    ("older", "command"),
    [
        ("ALTER TABLE clients DROP COLUMN return_urls", ("clients", "list")),
        ("DROP TABLE provider_status", ("outbox", "stats")),
    ],
)
def test_a_schema_older_than_the_code_says_to_release(
    run: Run, postgres: Postgres, older: str, command: tuple[str, ...]
) -> None:
    url = postgres.create_database("older_than_the_code")
    data(run("release", "--json", DATABASE_URL=url))
    opened = Database(url, statement_timeout=4.0, size=1)
    with opened.transaction() as tx:
        tx.execute(older)
    opened.close()
    done = run(*command, DATABASE_URL=url)
    postgres.drop_database("older_than_the_code")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "flask --app app release" in done.stderr


@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-"])
def test_an_answer_that_cannot_be_written_is_one_line_and_no_success(
    database_url: str, database: Database, redirection: str
) -> None:
    clients.create(database, "shop")
    for json_or_not in ("", "--json"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m flask --app app clients list {json_or_not} {redirection}"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "DATABASE_URL": database_url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("Error: done, but the answer could not be written")
        assert done.stderr.count("\n") == 1


def test_release_migrates_an_empty_database_and_leaves_a_receipt(run: Run, postgres: Postgres) -> None:
    url = postgres.create_database("release_of_an_empty_one")
    early = run("clients", "list", DATABASE_URL=url)
    assert (early.exit_code, "release" in early.stderr) == (3, True)
    first = data(run("release", "--json", DATABASE_URL=url, HEROKU_SLUG_COMMIT="abc123"))
    assert (first["commit"], first["schema_before"], first["outcome"]) == ("abc123", None, "done")
    second = data(run("release", "--json", DATABASE_URL=url, SOURCE_VERSION="def456"))
    assert second["schema_before"] == second["schema_after"] == first["schema_after"]
    opened = Database(url, statement_timeout=4.0, size=1)
    with opened.transaction() as tx:
        rows = tx.execute(
            "SELECT commit, outcome, finished_at >= started_at AS ok FROM releases ORDER BY id"
        ).fetchall()
    opened.close()
    assert rows == [
        {"commit": "abc123", "outcome": "done", "ok": True},
        {"commit": "def456", "outcome": "done", "ok": True},
    ]
    postgres.drop_database("release_of_an_empty_one")


def test_release_leaves_the_schema_of_a_newer_release_alone(run: Run, make: Factory) -> None:
    make.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
    done = data(run("release", "--json"))
    assert done["schema_before"] == done["schema_after"] == "from_the_future"


def test_a_migration_that_fails_is_refused_and_recorded(run: Run, make: Factory) -> None:
    make.execute("DELETE FROM alembic_version")  # so that it would create what is there
    done = run("release")
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr
    assert make.one("SELECT outcome FROM releases") == {"outcome": "failed"}
