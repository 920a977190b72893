"""The client's book: what it asked for and what it was told. Kept in memory, and line by line on disk."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

NO_ANSWER = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One request and its answer. `status` 0: none came. Times in seconds since 1970.

    `about` is the idempotency key of a create, the delivery's id of a consume, else the verification's; `answer` holds what
    the ledger asks for.
    """

    what: str  # create, consume, cancel or read
    about: str
    asked_at: float
    answered_at: float
    status: int
    code: str = ""
    retry_after: str = ""
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Asked:
    """An intent that the client will not let go of before it is answered."""

    key: str
    account: str
    email: str
    purpose: str


class Book:
    """Everything one host knows. Safe to use from many threads."""

    def __init__(self, path: Path | None = None) -> None:
        self.asked: dict[str, Asked] = {}
        self.calls: list[Call] = []
        self.feed: list[Mapping[str, Any]] = []  # what the follower has read, in order
        self._lock = threading.Lock()
        self._file: IO[str] | None = path.open("w", encoding="utf-8") if path else None

    def ask(self, asked: Asked) -> None:
        """Write an intent down before it is sent."""
        with self._lock:
            self.asked[asked.key] = asked
            self._write("asked", asdict(asked))

    def note(self, call: Call) -> None:
        """Write an answer down, or that there was none."""
        with self._lock:
            self.calls.append(call)
            self._write("call", asdict(call))

    def read_feed(self, items: list[Mapping[str, Any]]) -> None:
        """Write down a page of the feed."""
        with self._lock:
            self.feed += items
            self._write("feed", {"items": len(items), "at": time.time()})

    def close(self) -> None:
        """No more is written to the disk."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def of(self, what: str) -> list[Call]:
        """The calls of one kind so far."""
        with self._lock:
            return [call for call in self.calls if call.what == what]

    def answers(self) -> dict[str, set[str]]:
        """Idempotency key -> the verifications it was answered with."""
        found: dict[str, set[str]] = {}
        for call in self.of("create"):
            if call.status == 202:
                found.setdefault(call.about, set()).add(call.answer["verification_id"])
        return found

    def unanswered(self) -> list[str]:
        """The keys of intents that no answer has settled."""
        settled = {call.about for call in self.of("create") if call.status and call.status < 500}
        with self._lock:
            return [key for key in self.asked if key not in settled]

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps({kind: values}) + "\n")
            self._file.flush()
