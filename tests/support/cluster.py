"""The product's own processes, as the Procfile starts them, on servers of the test's."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dev.children import Child, Printer, read_procfile

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_SECONDS = 30.0


class Cluster:
    """Starts processes and ends them; a context manager. Their output is kept for a failing test to show."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {
            **os.environ,
            **environment,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.commands = read_procfile(ROOT / "Procfile")
        self.children: list[Child] = []
        self._output = _Tee()
        self._printer = Printer(self._output)

    def start(self, kind: str, name: str | None = None, **environment: str) -> Child:
        """Start one of the Procfile's processes. `name` tells two of a kind apart."""
        command = self.commands[kind].replace("0.0.0.0", "127.0.0.1")
        if kind == "worker":
            command += f" --hostname {name or kind}@%h"
        child = Child(name or kind, command, {**self.environment, **environment}, folder=ROOT)
        self.children.append(child.start(self._printer))
        return child

    def output(self, name: str = "") -> str:
        """Every line the processes have written so far, or those of one."""
        return "".join(line for line in self._output.lines if line.startswith(name))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.returncode() is None:
                os.kill(child.pid, signal.SIGCONT)
            child.stop(seconds=0 if child.returncode() is not None else 10)


class _Tee(io.StringIO):
    """Keeps what is written, and passes it on for a failing test to show."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def write(self, text: str, /) -> int:
        self.lines.append(text)
        return sys.stderr.write(text)


def wait_for(check: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """The first true answer of `check`; fails after the deadline and says what it waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := check():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:g} s for {what}")
