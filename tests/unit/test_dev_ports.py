"""Ports of `make run`: the same again, or the next, and said so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.ports import Ports
from dev.processes import free_port


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_told_and_the_one_instead_stays_for_the_next_run(tmp_path: Path, taken: int) -> None:
    said: list[str] = []
    ports = Ports(tmp_path / "ports", {"web": taken}, said.append)
    chosen = ports.choose("web")
    ports.keep()
    assert said == [f"{taken} is taken, using {chosen} for web"]
    assert taken < chosen

    again = Ports(tmp_path / "ports", {"web": free_port()}, said.append)
    assert again.choose("web") == chosen
    assert len(said) == 1


def test_a_kept_port_that_is_taken_now_leads_back_to_the_liked_one(tmp_path: Path, taken: int) -> None:
    (tmp_path / "ports").write_text(f"web={taken}\n")
    liked = free_port()
    assert Ports(tmp_path / "ports", {"web": liked}, print).choose("web") == liked


def test_a_port_that_is_asked_for_comes_first_and_is_not_kept(tmp_path: Path) -> None:
    asked, liked = free_port(), free_port()
    ports = Ports(tmp_path / "ports", {"web": liked}, print)
    assert ports.choose("web", asked) == asked
    ports.keep()
    assert not (tmp_path / "ports").exists()


def test_two_parts_never_get_the_same_port(tmp_path: Path) -> None:
    liked = free_port()
    (tmp_path / "ports").write_text(f"web={liked}\nflower={liked}\nsmtp=nonsense\n")
    ports = Ports(tmp_path / "ports", {"web": liked, "flower": liked, "smtp": liked}, lambda _: None)
    assert len({ports.choose(name) for name in ("web", "flower", "smtp")}) == 3


def test_what_is_liked_by_nobody_takes_any_port_and_keeps_nothing(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports", {}, print)
    assert ports.choose("web") > 0
    ports.keep()
    assert not list(tmp_path.iterdir())
