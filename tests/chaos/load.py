"""Hosts and people: they ask for verifications, ask again when no answer comes, and use, cancel and replace what they got."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from tests.chaos.book import NO_ANSWER, Asked, Book, Call
from tests.chaos.mailbox import Mail, Mailbox

ADDRESSES = "chaosperson"  # every address begins so: what a log must not show is easily found
ACCOUNTS = "chaosaccount"
_PATIENCE_SECONDS = 4.0
_HASTY_SECONDS = 0.03  # a client that gives up before any answer, and asks again
_PAUSE_SECONDS = 0.3  # between two tries
_KINDS = {  # how often a host does what, of a hundred times
    "fresh": 70,
    "twice": 8,  # the same request on two connections at once
    "hasty": 8,
    "again": 8,  # another verification for an account that has one: the old one is superseded
    "brief": 6,  # a token that expires soon
}
_CONSUMED, _REPEATED, _CANCELLED, _LOOKED_AT = 0.6, 0.15, 0.08, 0.15


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked, and again if need be. `about`: see `Call`."""

    what: str
    about: str
    path: str
    method: str = "POST"
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class Load:
    """`threads` hosts, people who read their mail, and a follower of the feed. Runs until `stop()`; `finish()` lets hosts
    ask on until everything is answered.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str,
        mailbox: Mailbox,
        book: Book,
        *,
        seed: int,
        threads: int = 5,
        pace: float = 0.6,
    ) -> None:
        self._urls, self._book, self._pace = list(urls), book, pace
        self._http = httpx.Client(headers={"Authorization": f"Bearer {api_key}"}, trust_env=False)
        self._seed = seed
        self._stopping, self._giving_up = threading.Event(), threading.Event()
        self._mail: deque[Mail] = deque()
        mailbox.listeners.append(self._mail.append)
        runners: list[Callable[[random.Random], None]] = [*[self._host] * threads, self._person, self._person]
        self._threads = [
            threading.Thread(target=self._run, args=(runner, number), daemon=True, name=f"load-{number}")
            for number, runner in enumerate(runners)
        ]
        self._follower = threading.Thread(target=self._follow, daemon=True, name="follower")
        self.errors: list[str] = []

    def start(self) -> None:
        """Begin."""
        for thread in (*self._threads, self._follower):
            thread.start()

    def stop(self) -> None:
        """Ask for nothing new; what was asked for is still asked until it is answered."""
        self._stopping.set()

    @property
    def is_over(self) -> bool:
        """Whether every host and every person has the last answer."""
        return not any(thread.is_alive() for thread in self._threads)

    def finish(self, seconds: float) -> None:
        """Wait for the last answers, at most that long."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._giving_up.set()
        self._follower.join(10)
        self.errors += [f"{thread.name} still asks" for thread in self._threads if thread.is_alive()]

    def _run(self, runner: Callable[[random.Random], None], number: int) -> None:
        draw = random.Random(f"{self._seed}/{number}")
        while not self._stopping.wait(draw.expovariate(1 / self._pace)):
            try:
                runner(draw)
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")

    # Hosts

    def _host(self, draw: random.Random) -> None:
        kind = draw.choices(list(_KINDS), list(_KINDS.values()))[0]
        asked = self._intent(draw, account=self._known_account(draw) if kind == "again" else None)
        body: dict[str, Any] = {"account_id": asked.account, "email": asked.email, "purpose": asked.purpose}
        if kind == "brief":
            body["expires_in"] = draw.randint(4, 12)
        request = _Request(
            "create", asked.key, "/v1/verifications", body=body, headers={"Idempotency-Key": asked.key}
        )
        self._book.ask(asked)
        if kind == "twice":
            self._at_once(request)
            return
        last = self._until_answered(request, draw.randrange(2), _HASTY_SECONDS if kind == "hasty" else None)
        if last.succeeded:
            self._look_after(last.answer["verification_id"], draw)

    def _look_after(self, verification: str, draw: random.Random) -> None:
        """Look at it, or cancel it, or neither."""
        path, first = f"/v1/verifications/{verification}", draw.randrange(2)
        if draw.random() < _CANCELLED:
            self._until_answered(_Request("cancel", verification, f"{path}/cancel"), first)
        for seen in (path, f"{path}/receipt"):
            if draw.random() < _LOOKED_AT:
                self._until_answered(_Request("read", verification, seen, "GET"), first)

    def _intent(self, draw: random.Random, account: str | None) -> Asked:
        number = f"{draw.getrandbits(48):012x}"
        return Asked(
            key=f"key-{number}",
            account=account or f"{ACCOUNTS}-{number}",
            email=f"{ADDRESSES}-{number}@host{draw.randint(1, 9)}.example",
            purpose=draw.choice(["signup", "signup", "email_change", "newsletter"]),
        )

    def _known_account(self, draw: random.Random) -> str | None:
        known = list(self._book.asked.values())[-20:]
        return draw.choice(known).account if known else None

    def _at_once(self, request: _Request) -> None:
        """The same from both sides."""
        twin = threading.Thread(target=self._until_answered, args=(request, 0), daemon=True)
        twin.start()
        self._until_answered(request, 1)
        twin.join()

    # People

    def _person(self, draw: random.Random) -> None:
        """Read the mails that came, and use some of their links; sometimes twice."""
        while self._mail:
            mail = self._mail.popleft()
            if draw.random() < _CONSUMED:
                use = _Request("consume", mail.delivery_id, "/v1/tokens/consume", body={"token": mail.token})
                for _ in range(2 if draw.random() < _REPEATED else 1):
                    self._until_answered(use, draw.randrange(2))

    def _until_answered(self, request: _Request, first: int, patience: float | None = None) -> Call:
        """Ask until an answer settles it, as a real host does: with the same key. `patience` is the first try's."""
        for attempt in count(first):
            call = self._call(request, self._urls[attempt % len(self._urls)], patience or _PATIENCE_SECONDS)
            if (call.status and call.status < 500) or self._giving_up.wait(_PAUSE_SECONDS):
                break
            patience = None
        return call

    def _call(self, request: _Request, url: str, patience: float) -> Call:
        """One try. The book has it, whatever comes of it."""
        asked_at = time.time()
        try:
            answer = self._http.request(
                request.method,
                f"{url}{request.path}",
                json=request.body,
                headers=request.headers,
                timeout=patience,
            )
        except httpx.HTTPError as error:
            call = Call(request.what, request.about, asked_at, time.time(), NO_ANSWER, type(error).__name__)
        else:
            call = _call_of(request, asked_at, answer)
        self._book.note(call)
        return call

    # The feed

    def _follow(self) -> None:
        """Read the feed as the documentation says, all the time, and miss nothing."""
        cursor, attempt = "0", 0
        while not self._giving_up.wait(0.5):
            attempt += 1
            url = f"{self._urls[attempt % len(self._urls)]}/v1/changes?after={cursor}&limit=100"
            try:
                answer = self._http.get(url, timeout=_PATIENCE_SECONDS)
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                page = answer.json()
                self._book.read_feed(page["items"])
                cursor = page["next_cursor"]
            elif answer.status_code != 503:
                self.errors.append(f"the feed answered {answer.status_code}: {_json(answer).get('code')}")


def _call_of(request: _Request, asked_at: float, answer: httpx.Response) -> Call:
    said = _json(answer)
    return Call(
        request.what,
        request.about,
        asked_at,
        time.time(),
        answer.status_code,
        str(said.get("code", "")),
        answer.headers.get("Retry-After", ""),
        {name: said[name] for name in ("verification_id", "delivery_id") if name in said},
    )


def _json(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        read = answer.json()
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
