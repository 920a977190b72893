"""Celery's settings hold what the design asks of messages: hints, in JSON, that nobody waits for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

import celery_config
from db.errors import ConfigurationError


@pytest.fixture
def reload(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    def load(url: str) -> ModuleType:
        monkeypatch.setenv("REDIS_URL", url)
        for name in ("broker_use_ssl",):
            if hasattr(celery_config, name):
                delattr(celery_config, name)
        return importlib.reload(celery_config)

    yield load
    load("redis://localhost:6379/0")


def test_only_json_goes_over_the_broker() -> None:
    assert celery_config.task_serializer == "json"
    assert celery_config.accept_content == ["json"]


def test_no_result_and_no_time_lives_in_the_broker() -> None:
    assert celery_config.result_backend is None
    assert celery_config.enable_utc
    assert not any(
        hasattr(celery_config, name) for name in ("task_expires", "result_expires", "task_time_limit")
    )
    assert all("options" not in entry for entry in celery_config.beat_schedule.values())


def test_every_socket_has_a_time_out() -> None:
    options = celery_config.broker_transport_options
    assert 0 < options["socket_timeout"] <= 5
    assert 0 < options["socket_connect_timeout"] <= 5


def test_sends_in_flight_survive_the_broker() -> None:
    assert celery_config.worker_cancel_long_running_tasks_on_connection_loss is False


def test_kicks_and_sweeps_have_queues_of_their_own() -> None:
    assert {queue.name for queue in celery_config.task_queues} == {"kicks", "sweeps"}
    assert celery_config.task_routes["countersign.sweep"] == {"queue": "sweeps"}
    assert celery_config.task_routes["countersign.deliver"] == {"queue": "kicks"}


def test_a_platforms_self_signed_certificate_is_taken(reload) -> None:
    options = reload("rediss://:secret@r.example:6380/0").broker_use_ssl
    assert options == {"ssl_cert_reqs": 0, "ssl_check_hostname": False}


def test_another_broker_is_refused_by_name(reload) -> None:
    with pytest.raises(ConfigurationError, match="REDIS_URL"):
        reload("amqp://r.example")


def test_every_setting_has_its_reason_in_the_documentation() -> None:
    from tests.unit.test_config import ROOT

    text = (ROOT / "docs/celery.md").read_text(encoding="utf-8")
    settings = [
        name
        for name in vars(celery_config)
        if name.startswith(
            ("broker_", "task_", "worker_", "beat_", "accept_", "enable_", "result_", "timezone")
        )
    ]
    assert [name for name in settings if f"`{name}`" not in text] == []
