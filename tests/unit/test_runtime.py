"""A process has one courier, however many threads ask first; what it is built from is checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from db import config as db_config
from db.errors import ConfigurationError
from tasks import config as tasks_config
from tasks import runtime
from tests.support.environment import environment
from tests.support.races import together


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in environment(
        "postgresql://127.0.0.1:1/x", "redis://127.0.0.1:1", "smtp://127.0.0.1:1"
    ).items():
        monkeypatch.setenv(name, value)
    caches = (
        db_config.settings,
        tasks_config.settings,
        tasks_config.public_url,
        tasks_config.sweep_interval,
        runtime.database,
        runtime._courier,
    )
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def test_threads_that_ask_at_once_share_one_courier() -> None:
    couriers = together(8, lambda _: runtime.courier())
    assert len({id(courier) for courier in couriers}) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAIL_FROM", "nobody"),
        ("MAIL_URL", "pigeon://x.example"),
        ("MAIL_URL", "smtp://:secret@"),
        ("LEASE_SECONDS", "1"),
    ],
)
def test_a_senseless_setting_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name) as refused:
        runtime.courier()
    assert "secret" not in str(refused.value)
