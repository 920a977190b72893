"""Log lines: known keys, masked values, exceptions without their messages (G9)."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from db import logs
from tests.support.log_lines import logging_as

SECRETS = (
    "ada@example.com",
    "ada%40example.com",
    "9WFX-T3C9-RKH3-A2MZ",
    "9WFXT3C9RKH3A2MZ",
    "cs_live_6sh75p8bnz_88729g4tq7xr7bgkz4p5i5xi3wkjnuip",
    "redis://default:hunter2@redis.example:6379",
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
    ],
)
def test_ids_and_numbers_stay_readable(plain: str) -> None:
    assert logs.mask(plain) == plain


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
