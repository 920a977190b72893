"""The programs of docs/integrate.md, run as they stand there beside a whole Countersign."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.processes import free_port
from tests.e2e.conftest import System
from tests.support.cluster import ROOT, wait_for
from tests.support.lossy_way import LossyWay

PAGE = (ROOT / "docs" / "integrate.md").read_text(encoding="utf-8")
TEN_LINES, PRODUCT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Host:
    """The product of the page: its web process, and its command that reads the feed."""

    def __init__(self, system: System, api_url: str, folder: Path, port: int) -> None:
        (folder / "host.py").write_text(PRODUCT, encoding="utf-8")
        self.url = f"http://127.0.0.1:{port}"
        key = system.command("clients", "create", "shop", "--return-url", f"{self.url}/welcome")["api_key"]
        self._folder = folder
        self._environment = {**os.environ, "API_URL": api_url, "API_KEY": key, "HOST_URL": self.url}
        self._web = subprocess.Popen(
            self._flask("run", "--port", str(port)), cwd=folder, env=self._environment
        )

    def follow(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Read the feed once."""
        return subprocess.run(
            self._flask("follow"),
            cwd=self._folder,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def active(self) -> dict[str, bool]:
        """Which of its accounts' addresses are confirmed."""
        with closing(sqlite3.connect(self._folder / "host.db")) as db:
            return {email: bool(active) for email, active in db.execute("SELECT email, active FROM accounts")}

    def stop(self) -> None:
        self._web.terminate()
        self._web.wait(20)

    @staticmethod
    def _flask(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "flask", "--app", "host", *arguments]


@pytest.fixture
def way(system: System) -> Iterator[LossyWay]:
    with LossyWay(system.url) as between:
        yield between


@pytest.fixture
def host(system: System, way: LossyWay, tmp_path: Path) -> Iterator[Host]:
    product = Host(system, way.url, tmp_path, free_port())
    wait_for(lambda: _answers(product.url), "the product")
    yield product
    product.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 404
    except httpx.HTTPError:
        return False


def _sign_up(host: Host, email: str, browser: httpx.Client | None = None) -> dict[str, Any]:
    answer = (browser or httpx).post(f"{host.url}/sign-up", data={"email": email}, timeout=20)
    assert answer.status_code == 200, answer.text
    read: dict[str, Any] = answer.json()
    return read


def _mail_to(system: System, email: str) -> str:
    """The token that arrived there."""
    (message,) = wait_for(lambda: system.inbox.messages(to=email), f"mail for {email}")
    return str(message["text"].split("/verify#")[1].split()[0])


def test_a_product_signs_people_up_and_learns_of_it_in_both_ways(system: System, host: Host) -> None:
    back, elsewhere = "back@example.com", "elsewhere@example.com"
    browser = httpx.Client(timeout=20)
    signed_up = _sign_up(host, back, browser)
    assert signed_up["look_into"] == "b***@example.com"
    _sign_up(host, elsewhere)
    assert host.active() == {back: False, elsewhere: False}

    # One comes back through the page's link, which a stranger cannot use …
    form = {"token": _mail_to(system, back), "action": "confirm"}
    page = httpx.post(f"{system.url}/verify", data=form)
    (onward,) = re.findall(
        rf'href="({re.escape(host.url)}/welcome\?verification_id=ver_[0-9a-f]{{32}})"', page.text
    )
    assert httpx.get(onward, timeout=20).json() == {"please": "sign in"}
    assert browser.get(onward).json() == {"welcome": signed_up["account"]}
    assert host.active() == {back: True, elsewhere: False}
    assert browser.post(f"{host.url}/sign-up", data={"email": back.upper()}).status_code == 409

    # … the other confirms somewhere else, and the feed tells; reading it again changes nothing.
    httpx.post(f"{system.url}/v1/tokens/consume", json={"token": _mail_to(system, elsewhere)})
    for said in ("2 confirmed", "0 confirmed"):
        assert said in host.follow().stdout
        assert host.active() == {back: True, elsewhere: True}


@pytest.mark.parametrize("again", ["sign-up", "follow"])
def test_a_product_that_lost_the_answer_asks_again_and_loses_no_account(
    system: System, host: Host, way: LossyWay, again: str
) -> None:
    email = f"lost-{again}@example.com"
    way.lose_next_answer()
    lost = httpx.post(f"{host.url}/sign-up", data={"email": email}, timeout=20)
    assert (lost.status_code, "Nothing is lost" in lost.text) == (503, True)
    assert host.active() == {email: False}

    if again == "sign-up":
        _sign_up(host, email)
    else:
        assert "asked again for 1;" in host.follow().stdout
    assert "asked again for 0;" in host.follow().stdout
    token = _mail_to(system, email)  # one mail, however often it was asked for
    httpx.post(f"{system.url}/v1/tokens/consume", json={"token": token})
    assert "1 confirmed" in host.follow().stdout
    assert host.active() == {email: True}


def test_a_product_asks_anew_for_somebody_whose_link_ran_out(system: System, host: Host) -> None:
    email = "late@example.com"
    _sign_up(host, email)
    form = {"token": _mail_to(system, email), "action": "revoke"}
    httpx.post(f"{system.url}/verify", data=form)
    _sign_up(host, email)
    wait_for(lambda: len(system.inbox.messages(to=email)) == 2, "the mail of the second try")


def test_following_without_a_key_or_with_a_bad_one_says_so_in_a_line(host: Host) -> None:
    for key, words in (("", "needs API_URL and API_KEY"), ("cs_live_nonsense", "401")):
        done = host.follow(API_KEY=key)
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_a_product_is_told_what_is_wrong_with_an_address_and_believes_no_made_up_return(
    system: System, host: Host
) -> None:
    refused = httpx.post(f"{host.url}/sign-up", data={"email": "not an address"}, timeout=20)
    assert refused.status_code == 400
    assert refused.json()["sorry"] != []
    assert host.active() == {}
    for made_up in ("ver_" + "0" * 32, "", "\n", "..", "../changes", "ver_0?x=1", "%0a", "\x00"):
        forged = httpx.get(f"{host.url}/welcome", params={"verification_id": made_up}, timeout=20)
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
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        program["verify"]("7", "no address", "https://shop.example/welcome")
    assert not program["is_confirmed"]("\n", "7")
    asked = [program["verify"]("7", "seven@example.com", "https://shop.example/welcome") for _ in range(2)]
    assert asked[0]["verification_id"] == asked[1]["verification_id"]
    assert not program["is_confirmed"](asked[0]["verification_id"], "7")
    httpx.post(f"{system.url}/v1/tokens/consume", json={"token": _mail_to(system, "seven@example.com")})
    assert program["is_confirmed"](asked[0]["verification_id"], "7")
    assert not program["is_confirmed"](asked[0]["verification_id"], "8")
