"""The programs of docs/integrate.md, run as they stand there beside a whole Countersign."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.processes import free_port
from tests.e2e.conftest import System
from tests.support.cluster import ROOT, wait_for

PAGE = (ROOT / "docs" / "integrate.md").read_text(encoding="utf-8")
TEN_LINES, PRODUCT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Host:
    """The product of the page: its web process, and its command that reads the feed."""

    def __init__(self, system: System, folder: Path, port: int) -> None:
        (folder / "host.py").write_text(PRODUCT, encoding="utf-8")
        self.url = f"http://127.0.0.1:{port}"
        key = system.command("clients", "create", "shop", "--return-url", f"{self.url}/welcome")["api_key"]
        self._folder = folder
        self._environment = {**os.environ, "API_URL": system.url, "API_KEY": key}
        self._web = subprocess.Popen(
            self._flask("run", "--port", str(port)), cwd=folder, env=self._environment
        )

    def follow(self) -> None:
        """Read the feed once."""
        subprocess.run(self._flask("follow"), cwd=self._folder, env=self._environment, check=True, timeout=60)

    def accounts(self) -> list[tuple[Any, ...]]:
        import sqlite3

        with sqlite3.connect(self._folder / "host.db") as db:
            return db.execute("SELECT id, active FROM accounts ORDER BY id").fetchall()

    def stop(self) -> None:
        self._web.terminate()
        self._web.wait(20)

    @staticmethod
    def _flask(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "flask", "--app", "host", *arguments]


@pytest.fixture
def host(system: System, tmp_path: Path) -> Iterator[Host]:
    product = Host(system, tmp_path, free_port())
    wait_for(lambda: _answers(product.url), "the product")
    yield product
    product.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 404
    except httpx.HTTPError:
        return False


def _sign_up(host: Host, email: str) -> dict[str, Any]:
    answer = httpx.post(f"{host.url}/sign-up", data={"email": email}, timeout=20)
    assert answer.status_code == 200, answer.text
    read: dict[str, Any] = answer.json()
    return read


def _mail_to(system: System, email: str) -> str:
    """The token that arrived there."""
    (message,) = wait_for(lambda: system.inbox.messages(to=email), f"mail for {email}")
    return str(message["text"].split("/verify#")[1].split()[0])


def test_a_product_signs_people_up_and_learns_of_it_in_both_ways(system: System, host: Host) -> None:
    back, elsewhere = "back@example.com", "elsewhere@example.com"
    assert _sign_up(host, back)["look_into"] == "b***@example.com"
    _sign_up(host, elsewhere)
    assert host.accounts() == [(1, 0), (2, 0)]

    # One comes back through the page's link …
    form = {"token": _mail_to(system, back), "action": "confirm"}
    page = httpx.post(f"{system.url}/verify", data=form)
    (onward,) = re.findall(
        rf'href="({re.escape(host.url)}/welcome\?verification_id=ver_[0-9a-f]{{32}})"', page.text
    )
    assert httpx.get(onward, timeout=20).json() == {"welcome": "1"}
    assert host.accounts() == [(1, 1), (2, 0)]

    # … the other confirms somewhere else, and the feed tells; reading it again changes nothing.
    httpx.post(f"{system.url}/v1/tokens/consume", json={"token": _mail_to(system, elsewhere)})
    for _ in range(2):
        host.follow()
        assert host.accounts() == [(1, 1), (2, 1)]


def test_a_product_is_told_what_is_wrong_with_an_address_and_believes_no_made_up_return(
    system: System, host: Host
) -> None:
    refused = httpx.post(f"{host.url}/sign-up", data={"email": "not an address"}, timeout=20)
    assert refused.status_code == 400
    assert refused.json()["sorry"] != []
    forged = httpx.get(f"{host.url}/welcome", params={"verification_id": "ver_" + "0" * 32}, timeout=20)
    assert forged.json() == {"please": "look into your mail"}


def test_the_ten_lines_ask_once_and_see_the_confirmation(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = system.command("clients", "create", "lines", "--return-url", "https://shop.example/welcome")[
        "api_key"
    ]
    monkeypatch.setenv("API_URL", system.url)
    monkeypatch.setenv("API_KEY", str(key))
    program: dict[str, Callable[..., Any]] = {}
    exec(TEN_LINES, program)
    asked = [program["verify"]("7", "seven@example.com", "https://shop.example/welcome") for _ in range(2)]
    assert asked[0]["verification_id"] == asked[1]["verification_id"]
    assert not program["is_confirmed"](asked[0]["verification_id"], "7")
    httpx.post(f"{system.url}/v1/tokens/consume", json={"token": _mail_to(system, "seven@example.com")})
    assert program["is_confirmed"](asked[0]["verification_id"], "7")
    assert not program["is_confirmed"](asked[0]["verification_id"], "8")
