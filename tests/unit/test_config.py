"""Settings: each is checked at start, by a message that names the variable and never shows a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from db import config as db_config
from db.errors import ConfigurationError
from tasks import config as tasks_config
from tests.support.environment import environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(
        "postgresql://db.example/x", "redis://r.example", "smtp://m.example"
    ).items():
        monkeypatch.setenv(name, value)
    for cached in (
        db_config.settings,
        db_config.log_format,
        tasks_config.settings,
        tasks_config.public_url,
        tasks_config.sweep_interval,
    ):
        cached.cache_clear()


def test_the_settings_of_a_test_are_good() -> None:
    assert tasks_config.settings().lease == 4.0
    assert db_config.settings().active_token_key == "k1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://db.example/x"),
        ("TOKEN_KEYS", ""),
        ("TOKEN_KEYS", "k1:short"),
        ("TOKEN_KEYS", "k1:!!!!"),
        ("STATEMENT_TIMEOUT_SECONDS", "0"),
        ("STATEMENT_TIMEOUT_SECONDS", "soon"),
        ("STATEMENT_TIMEOUT_SECONDS", "2"),
        ("STATEMENT_TIMEOUT_SECONDS", "4.1"),
        ("EVIDENCE_WINDOW_SECONDS", "1e12"),
        ("TOKEN_TTL_SECONDS", "10"),
        ("LEASE_SECONDS", "3.9"),
        ("LEASE_SECONDS", "nan"),
        ("LEASE_SECONDS", "inf"),
        ("LEASE_MARGIN_SECONDS", "-1"),
        ("MAX_ATTEMPTS", "0"),
        ("WORKER_SLOTS", "many"),
        ("RESEND_COOLDOWN_SECONDS", "-1"),
        ("RESEND_COOLDOWN_SECONDS", "nan"),
        ("CLIENT_MAX_WAITING", "-1"),
        ("CREATE_LIMIT", "mailbox=3"),
        ("CREATE_LIMIT", "account=3,account=4"),
        ("CREATE_LIMIT", "account=-3"),
        ("CREATE_LIMIT", "account"),
        ("CREATE_LIMIT", "9" * 20),
        ("CREATE_LIMIT", "\u0663"),
        ("CREATE_LIMIT", "account=\u0663"),
        ("CREATE_LIMIT", "client=" + "9" * 400),
        ("CLIENT_MAX_WAITING", "9" * 20),
        ("MAX_ATTEMPTS", "9" * 20),
        ("WORKER_SLOTS", "9" * 20),
        ("OSCILLATION_LIMIT", "9" * 20),
        ("RETRY_BACKOFF_SECONDS", ""),
        ("RETRY_BACKOFF_SECONDS", "60,0"),
        ("RETRY_BACKOFF_SECONDS", "60,nan"),
        ("RETRY_BACKOFF_SECONDS", "60,1e300"),
        ("UNKNOWN_BACKOFF_SECONDS", "inf"),
        ("SWEEP_INTERVAL_SECONDS", "1e-300"),
        ("PUBLIC_URL", "ftp://x.example"),
        ("PUBLIC_URL", "https://"),
        ("PUBLIC_URL", "https://x.example/?a=b"),
        ("SWEEP_INTERVAL_SECONDS", "0"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_a_senseless_setting_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        db_config.settings()
        tasks_config.settings()
        db_config.log_format()


@pytest.mark.parametrize("name", ["DATABASE_URL", "TOKEN_KEYS", "MAIL_URL", "MAIL_FROM", "PUBLIC_URL"])
def test_a_missing_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(ConfigurationError, match=name):
        db_config.settings()
        tasks_config.settings()


@pytest.mark.parametrize("name", ["TOKEN_KEYS", "DATABASE_URL", "PUBLIC_URL"])
def test_a_refusal_never_shows_the_value(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "canary:secret")
    with pytest.raises(ConfigurationError) as refused:
        db_config.settings()
        tasks_config.settings()
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_database_urls_work_as_platforms_give_them(scheme: str) -> None:
    given = f"{scheme}://user:pa%23ss@db.example:5433/name?sslmode=require"
    assert db_config.libpq_url(given) == "postgresql://user:pa%23ss@db.example:5433/name?sslmode=require"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://canary:secret pw@db.example/x",
        "postgresql://canary:se%zzcret@db.example/x",
        "postgresql://canary:secret@db.example/x?bogus=1",
        "postgresql://canary:secret@[::1/x",
        "postgresql://canary:secret@db.example:port/x",
        "postgresql://canary:secret@db.example:99999/x",
        "postgresql://canary:secret\udcff@db.example/x",
        "postgresql:canary",
    ],
)
def test_a_database_url_that_libpq_refuses_is_refused_at_start_without_a_word_of_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="DATABASE_URL") as refused:
        db_config.libpq_url(url)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    assert not re.search("canary|secret|zz|bogus|99999", str(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///name",
        "postgresql://a,b/name",
        "postgresql://[::1]:5433/name",
        "postgres://u@/n?host=/run",
    ],
)
def test_whatever_libpq_takes_is_taken_as_it_is(url: str) -> None:
    assert db_config.libpq_url(f" {url}\n") == url.replace("postgres://", "postgresql://")


def test_every_variable_the_code_reads_is_documented_and_no_other() -> None:
    sources = [
        *ROOT.glob("app/**/*.py"),
        *ROOT.glob("tasks/**/*.py"),
        *ROOT.glob("db/**/*.py"),
        ROOT / "celery_config.py",
    ]
    reads = re.compile(
        r"""(?:env|Env\(\))\s*\.\w+\(\s*"([A-Z_]+)"|\b(?:positive_seconds|_steps|_at_least_one|_seconds)\(\s*(?:env|Env\(\)),\s*"([A-Z_]+)\""""
    )
    read = {a or b for source in sources for a, b in reads.findall(source.read_text(encoding="utf-8"))}
    documented = set(
        re.findall(r"^\| `([A-Z_]+)`", (ROOT / "docs/configuration.md").read_text(encoding="utf-8"), re.M)
    )
    assert read, "the pattern finds nothing"
    procfile = set(re.findall(r"\$\{?([A-Z_]+)", (ROOT / "Procfile").read_text(encoding="utf-8")))
    assert documented == read | procfile | {"FLOWER_BASIC_AUTH"}, "Flower reads that one"


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", (20, 20, 20_000, 20_000)),
        ("account=3", (3, 20, 20_000, 20_000)),
        (" account=0 , caller=7,client=8,address=9 ", (0, 9, 8, 7)),
        ("100", (100, 100, 100, 100)),
    ],
)
def test_create_limit_sets_all_or_some(
    monkeypatch: pytest.MonkeyPatch, text: str, limits: tuple[int, ...]
) -> None:
    monkeypatch.setenv("CREATE_LIMIT", text)
    read = db_config.settings().limits
    assert (read.account, read.address, read.client, read.caller) == limits
