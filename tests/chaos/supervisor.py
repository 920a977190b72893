"""Keeps processes alive as a platform does, with clocks as wrong as somebody wants them.

Everything is started from one thread, which must live as long: the kernel ends a child with the thread that started it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from dev.children import Child, Printer, how_it_ended
from tests.chaos import clocks
from tests.support.cluster import ROOT

_RESTART_SECONDS = 0.4  # a platform's supervisor is not faster
_PLATFORM_SECONDS = 30.0  # from SIGTERM to SIGKILL
_STOP_SECONDS = 12.0


@dataclass
class Part:
    """One process that is kept alive. `hurt_at`: when somebody last did something to it."""

    name: str
    command: str
    environment: Mapping[str, str]
    log: TextIO
    child: Child | None = None
    clock_hours: float = 0.0
    hurt_at: float = 0.0
    restart_at: float = 0.0
    kill_at: float = 0.0
    pids: set[int] = field(default_factory=set)  # all it has had

    def terminate(self) -> None:
        """As a platform stops a process; one that does not end is killed in the end."""
        self.signal(signal.SIGTERM, all_of_it=False)
        self.kill_at = self.hurt_at + _PLATFORM_SECONDS

    def signal(self, signum: int, *, all_of_it: bool = True) -> None:
        """To the process and its children, or to itself alone."""
        self.hurt_at = time.monotonic()
        if self.child is not None and self.child.returncode() is None:
            (os.killpg if all_of_it else os.kill)(self.child.pid, signum)


class Supervisor:
    """A context manager. `misbehaved` tells of processes that ended although nobody had hurt them, or did not end when they
    were told to.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is where their output goes."""
        self._folder = folder
        self.parts: dict[str, Part] = {}
        self.misbehaved: list[str] = []

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts.values():
            part.signal(signal.SIGCONT)
            if part.child is not None:
                part.child.ask_to_stop()
        for part in self.parts.values():
            if part.child is not None:
                part.child.stop(seconds=_STOP_SECONDS)
            part.log.close()

    def keep(self, name: str, command: str, environment: Mapping[str, str]) -> None:
        """Start a process, and start it again whenever it has ended."""
        self.parts[name] = Part(name, command, environment, self.log(name).open("w", encoding="utf-8"))
        self._start(self.parts[name])

    def log(self, name: str) -> Path:
        """What a process has written."""
        return self._folder / f"{name}.log"

    def _start(self, part: Part) -> None:
        clock = clocks.off_by(part.clock_hours, self._folder)
        part.child = Child(part.name, part.command, {**part.environment, **clock}, folder=ROOT)
        part.child.start(Printer(part.log))
        part.pids.add(part.child.pid)

    def tend(self) -> None:
        """Start again what has ended, after a moment, as a platform would."""
        now = time.monotonic()
        for part in self.parts.values():
            if part.child is None or part.child.returncode() is None:
                self._kill_if_late(part, now)
            elif not part.restart_at:
                part.restart_at = now + _RESTART_SECONDS
                self._note_end(part)
            elif now >= part.restart_at:
                part.restart_at = part.kill_at = 0.0
                self._start(part)

    def _kill_if_late(self, part: Part, now: float) -> None:
        if part.kill_at and now >= part.kill_at:
            self.misbehaved.append(f"{part.name} did not end within {_PLATFORM_SECONDS:g} s of SIGTERM")
            part.kill_at = 0.0
            part.signal(signal.SIGKILL)

    def _note_end(self, part: Part) -> None:
        if time.monotonic() - part.hurt_at > _PLATFORM_SECONDS + 1.0:
            assert part.child is not None
            self.misbehaved.append(f"{how_it_ended(part.child)}, though nobody had hurt it")
