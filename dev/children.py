"""Child processes of `make run` and `make demo`: their lines with a prefix, their end in order.

honcho is not used: it signals the whole set at once and kills after five seconds, while the worker needs its
send deadline and PostgreSQL must be the last to go.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from dev.processes import DevError, die_with_parent, stop_process

LAST_LINES = 15
LONGEST_LINE = 64 * 1024  # bytes; a longer one is printed in pieces
READER_SECONDS = 2.0
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)


def read_procfile(path: Path) -> dict[str, str]:
    """`{"web": "gunicorn …", …}`, in the file's order."""
    found = re.findall(r"^([A-Za-z0-9_-]+):[ \t]*(.+)$", path.read_text(), re.MULTILINE)
    if not found:
        raise DevError(f"{path} names no process; check the clone out again")
    return dict(found)


class Printer:
    """Whole lines from many threads, `name     | line`. A closed terminal or pipe silences it, no more."""

    def __init__(self, out: TextIO | None = None, *, width: int = 8) -> None:
        self._out = out or sys.stdout
        self._width = width
        self._lock = threading.Lock()
        self._colours: dict[str, int] = {}
        self._coloured = self._out.isatty() and not os.environ.get("NO_COLOR")

    def line(self, name: str, text: str) -> None:
        prefix = f"{name:<{self._width}} |"
        if self._coloured:
            colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        self.say(f"{prefix} {text}")

    def say(self, text: str = "") -> None:
        # ValueError: the stream was closed by the interpreter's end.
        with self._lock, suppress(OSError, ValueError):
            self._out.write(f"{text}\n")
            self._out.flush()


class Child:
    """One process in a session of its own, so that Ctrl-C in the terminal reaches only us."""

    def __init__(
        self,
        name: str,
        command: str,
        environment: Mapping[str, str],
        *,
        folder: Path,
        unprinted: re.Pattern[str] | None = None,
    ) -> None:
        """Lines that `unprinted` finds something in are kept among the last lines only."""
        self.name, self.command, self.environment, self.folder = name, command, environment, folder
        self.unprinted = unprinted
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self, printer: Printer) -> Child:
        """Start it under a shell (Procfile lines hold `$PORT`), which exec replaces by the program."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {self.command}"],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 (one C call, see there)
        )
        self._reader = threading.Thread(
            target=self._read, args=(printer,), name=f"log-{self.name}", daemon=True
        )
        self._reader.start()
        return self

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def returncode(self) -> int | None:
        """None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def stop(self, *, seconds: float) -> bool:
        """SIGTERM, wait at most `seconds`, SIGKILL the rest of its session. True when it went by itself."""
        if self._process is None:
            return True
        by_itself = stop_process(self._process, signal.SIGTERM, seconds=seconds)
        if self._reader is not None:
            self._reader.join(READER_SECONDS)
        return by_itself

    def _read(self, printer: Printer) -> None:
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as stream, suppress(OSError, ValueError):
            while line := stream.readline(LONGEST_LINE):
                text = line.decode(errors="replace").rstrip()
                if text:
                    self.last_lines.append(text)
                if text and not (self.unprinted and self.unprinted.search(text)):
                    printer.line(self.name, text)


def ended(children: Iterable[Child]) -> Child | None:
    """The first child that is no longer running."""
    return next((child for child in children if child.returncode() is not None), None)


def how_it_ended(child: Child) -> str:
    """`worker ended with exit status 1` or `worker was killed by SIGKILL`."""
    code = child.returncode()
    if code is not None and code < 0:
        return f"{child.name} was killed by {signal.Signals(-code).name}"
    return f"{child.name} ended with exit status {code}"


def python_command(module: str, *arguments: object) -> str:
    """A shell line that runs one of our modules under this Python."""
    return shlex.join([sys.executable, "-m", module, *map(str, arguments)])
