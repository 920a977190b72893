"""Log lines: known keys, masked values, exceptions without their messages (G9)."""

from __future__ import annotations

import json
import logging
import threading
from types import SimpleNamespace

import pytest
from gunicorn.http.errors import InvalidRequestMethod
from gunicorn.workers.base import Worker

from app import request_log
from db import ids, logs
from tests.support.log_lines import logging_as

SECRETS = (
    "ada@example.com",
    "ada%40example.com",
    "ada%2540example.com",
    "o'ada=lovelace@example.com",
    "first/ada@example.com",
    '"ada lovelace"@example.com',
    "9WFX-T3C9-RKH3-A2MZ",
    "9WFXT3C9RKH3A2MZ",
    "9wfx-t3c9-rkh3-a2mz",
    "9wfxt3c9rkh3a2mz",
    "9WFX T3C9 RKH3 A2MZ",
    "9wfx_t3c9_rkh3_a2mz",
    "9WFX.T3C9.RKH3.A2MZ",
    "9WFX\u2013T3C9\u2013RKH3\u2013A2MZ",
    "9WFX%252DT3C9%252DRKH3%252DA2MZ",
    "9WFX\u200bT3C9RKH3A2MZ",
    "9 w f x t 3 c 9 r k h 3 a 2 m z",
    "9WFXT3C9rkh3a2mz",
    "9OFX-TIC9-RLH3-A2MZ",
    "ABCD-EFGH-JKMN-PQRS",
    "ABCDEFGHJKMNPQRS",
    "esezwraefjxrdwgn",
    "7549+3160+tmff+cxww",
    "88729g4tq7xr7bgkz4p5i5xi3wkjnuip",
    "cs_live_6sh75p8bnz_88729g4tq7xr7bgkz4p5i5xi3wkjnuip",
    "cs_test_6sh75p8bnz_88729g4tq7xr7bgkz4p5i5xi3wkjnuip",
    "redis://default:hunter2@redis.example:6379",
    "redis://default:hunter%2F2@redis.example:6379",
    "resend://re_123456789",
    "Bearer abcdefghijklmnop",
    "https://host.example/x?token=hunter2",
    "https://host.example/verify#hunter2",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_is_covered(secret: str) -> None:
    masked = logs.mask(f"before {secret} after")
    assert secret not in masked
    assert "hunter2" not in masked
    assert masked.startswith("before ")


@pytest.mark.parametrize(
    "plain",
    [
        "dlv_01a22dbddc8375b7bf0e49dec93139bf",
        "01a22dbd-dca2-7978-a0c2-b253fdce59e3",
        "0123456789012345",
        "smtp/mail.example.com",
        "host:123:4",
        "250 2.0.0",
        "2026-11-30T18:37:28.368518Z",
        "http://127.0.0.1:5000/verify",
        "req_01a22dbddc8375b7bf0e49dec93139bf",
        "4bf92f3577b34da6",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "20261130T183728Z",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "1234 5678 9012 3456",
        "OperationalError",
        "malformed_message",
        "DELIVERY_DEADLINE_SECONDS",
        "Content-Transfer-Encoding",
        "that make some mean characterisation",
        "Lease or gate had ended before the mail left.",
    ],
)
def test_ids_and_numbers_stay_readable(plain: str) -> None:
    assert logs.mask(plain) == plain


@pytest.mark.parametrize("around", ["/x-{}", "token-{}", "/verify/{}", "({})", "code={}", "{}/consume"])
@pytest.mark.parametrize("token", ["9WFX-T3C9-RKH3-A2MZ", "9wfxt3c9rkh3a2mz"])
def test_a_token_is_covered_whatever_stands_around_it(around: str, token: str) -> None:
    masked = logs.mask(around.format(token))
    assert masked in {around.format("****"), "****"}


@pytest.mark.parametrize("secret", SECRETS)
def test_masking_twice_changes_nothing(secret: str) -> None:
    once = logs.mask(f"before {secret} after")
    assert logs.mask(once) == once


def test_one_event_is_one_line_of_bounded_length() -> None:
    masked = logs.mask("a\r\nb\u2028c" + "x" * 10_000)
    assert "\n" not in masked
    assert "\u2028" not in masked
    assert len(masked) < 600


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_nothing_secret_passes_whichever_way_it_comes(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_as(log_format):
        log = logs.get_logger("test")
        for secret in SECRETS:
            log.warning("event", reason=secret, counts={"x": [secret]}, unheard_of=secret, count=object())
            logging.getLogger("celery.worker").error("said %s", secret)
            try:
                raise ValueError(secret)
            except ValueError:
                log.exception("failed")
                logging.getLogger("library").exception("failed")
        written = capsys.readouterr().err
        assert written.count("ValueError") == 2 * len(SECRETS)
        assert "hunter2" not in written
        assert not [secret for secret in SECRETS if secret in written]


def test_an_unknown_key_is_named_but_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_as("json"):
        logs.get_logger("test").info("event", state="sending", body="a letter")
        line = json.loads(capsys.readouterr().err)
        assert line["state"] == "sending"
        assert line["dropped"] == ["body"]
        assert "letter" not in json.dumps(line)


def test_an_exception_is_its_types_and_places(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_as("json"):
        try:
            try:
                raise KeyError("secret")
            except KeyError as cause:
                raise RuntimeError("secret") from cause
        except RuntimeError:
            logs.get_logger("test").exception("failed")
        line = json.loads(capsys.readouterr().err)
        assert line["exception"] == "RuntimeError < KeyError"
        assert line["where"][0].startswith("unit/test_app_logs.py:")
        assert "secret" not in json.dumps(line)


def test_bound_values_are_on_every_line_of_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_as("json"):
        with logs.bound(correlation_id="req_1"):
            logs.get_logger("test").info("inside")
            logging.getLogger("library").warning("inside")
        logs.get_logger("test").info("outside")
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line.get("correlation_id") for line in lines] == ["req_1", "req_1", None]


def test_a_thread_that_dies_is_logged_without_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_as("json"):

        def die() -> None:
            raise ValueError("ada@example.com")

        thread = threading.Thread(target=die)
        thread.start()
        thread.join()
        line = json.loads(capsys.readouterr().err)
        assert (line["event"], line["exception"]) == ("uncaught_exception", "ValueError")


TOKEN_SHAPES = (
    "9wfxt3c9rkh3a2mz",
    "9WFX-T3C9-RKH3-A2MZ",
    "9WFXT3C9.RKH3.A2MZ",
    "xyz9WFXT3C9RKH3A2MZ",
    "ada at example",
)


@pytest.mark.parametrize("quoted", TOKEN_SHAPES)
def test_what_gunicorn_quotes_of_a_request_is_not_logged(
    quoted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_as("json"):
        worker = SimpleNamespace(log=logging.getLogger("gunicorn.error"))
        request = SimpleNamespace(method=quoted, uri=f"/{quoted}")
        for error in (InvalidRequestMethod(quoted), ValueError(quoted)):
            with pytest.raises(AttributeError):  # it answers next, which there is nobody for
                Worker.handle_error(worker, request, None, ("127.0.0.1", 1), error)
        written = capsys.readouterr().err
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["event"] for line in lines] == ["Invalid request from ip", "Error handling request … …"]
    assert quoted not in written


@pytest.mark.parametrize("quoted", TOKEN_SHAPES)
def test_what_drivers_say_of_rows_is_not_logged(quoted: str, capsys: pytest.CaptureFixture[str]) -> None:
    with logging_as("json"):
        logging.getLogger("psycopg").warning("error ignored terminating %r: %s", object(), ValueError(quoted))
        logging.getLogger("psycopg.pq").warning("the server said %s", quoted)
        logging.getLogger("celery.app.trace").error("Task %(name)s: %(exc)s", {"name": "x", "exc": quoted})
        logging.getLogger("library").error("it failed: %s", ValueError(quoted))
        logging.getLogger("library").error(ValueError(quoted))
        written = capsys.readouterr().err
    assert [json.loads(line)["event"] for line in written.splitlines()] == [
        "error ignored terminating '…': ValueError",
        "the server said …",
        "Task …: …",
        "it failed: ValueError",
        "ValueError",
    ]
    assert quoted not in written


def test_libraries_keep_their_own_words_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_as("json"):
        logging.getLogger("gunicorn.error").info("Booting worker with pid: %s", 42)
        logging.getLogger("gunicorn.error").info("USR2 signal ignored. Child exists.")
        logging.getLogger("celery.worker").info("Connected to %s", "redis://:hunter2@redis.example")
        logging.getLogger("library").info("%d of", "no number")
        events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == [
        "Booting worker with pid: 42",
        "USR2 signal ignored. Child exists.",
        "Connected to redis://***@redis.example",
        "%d of",
    ]


@pytest.mark.parametrize(
    "given",
    [
        "sw146p6d9qbhamwh",
        "SW146P6D9QBHAMWH",
        "SW14-6P6D-9QBH-AMWH",
        "sw1-46p6d-9qbhamwh",
        "ABCDEFGHJKMNPQRS",
        "abcdefghjkmnpqrs",
        "token-sw146p6d9qbhamwh",
        "0" * 129,
        "-x",
        "a b",
        "",
        None,
    ],
)
def test_a_request_id_that_may_be_a_token_is_replaced(given: str | None) -> None:
    made = request_log.request_id(given)
    assert ids.parse("req", made)
    assert made != given


@pytest.mark.parametrize(
    "given",
    [
        "4bf92f3577b34da6",
        "01a22dbd-dca2-7978-a0c2-b253fdce59e3",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "order.42_retry-1",
        "0123456789012345",
    ],
)
def test_a_request_id_as_tracing_makes_it_is_kept(given: str) -> None:
    assert request_log.request_id(given) == given
