"""Ports, locks, deadlines and signals: what every embedded service needs to start and to end cleanly."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
PORTS_TRIED = 50  # in a row, before any port will do
# Looked up once, here: between fork and exec nothing may be imported or loaded.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class DevError(Exception):
    """Something a person has to mend; the text is one clear line that says what to do."""


def die_with_parent(signum: int, parent: int | None = None) -> Callable[[], None]:
    """A `preexec_fn`: the kernel sends `signum` to the child when the thread that started it ends.

    `parent` is the id the child should see as its parent's (by default this process).

    Linux only; elsewhere it does nothing, and the next start finds and stops what was left behind. The
    setting survives exec and, since Python changes the user first, a change of user. It is one C call on a
    function looked up beforehand: nothing in it waits for a lock that another thread held at the fork.
    """
    expected = parent or os.getpid()

    def arrange() -> None:
        if _prctl is not None:
            _prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
            if os.getppid() != expected:  # the parent died before the kernel was told
                os._exit(1)

    return arrange


def free_port(preferred: int = 0, *, avoid: Collection[int] = ()) -> int:
    """`preferred` if nothing listens there, else the next that is free, else any, on 127.0.0.1.

    `avoid` holds ports that are promised to others who do not listen yet.
    """
    if preferred:
        for port in range(preferred, min(preferred + PORTS_TRIED, 65536)):
            if port not in avoid and not is_listening(port):
                with suppress(OSError):
                    return _bindable(port)
    return _bindable(0)


def _bindable(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Does anything accept connections at 127.0.0.1:`port`?"""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


class FolderLock:
    """An advisory lock on a folder, held by this process until `release()` or its death, of whatever kind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".lock"
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """True when it is ours now (also when it was before); False while another holder lives."""
        if self._file is not None:
            return True
        file = self.path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._file = file
        return True

    def holder(self) -> str:
        """The process id the holder wrote, for messages; `unknown` when it cannot be read."""
        with suppress(OSError):
            return self.path.read_text().strip() or "unknown"
        return "unknown"

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def wait_until(check: Callable[[], T], *, seconds: float, step: float = 0.02) -> T:
    """Repeat `check` until it answers something true or the time is up; returns the last answer."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer or time.monotonic() >= deadline:
            return answer
        time.sleep(step)


def is_alive(pid: int) -> bool:
    """Does a process with this id exist (a zombie does not count)?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return True


def command_of(pid: int) -> str:
    """The command line of a process, empty when it cannot be read."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    if Path("/proc/self").exists():
        return ""
    answer = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def stop_process(process: subprocess.Popen[bytes], signum: int, *, seconds: float) -> bool:
    """Ask with `signum`, wait, then SIGKILL the whole session it leads. True when it went by itself."""
    with suppress(ProcessLookupError):
        process.send_signal(signum)
    by_itself = True
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        by_itself = False
        process.kill()
        process.wait()
    # It was started in a session of its own, so its group holds its children and nothing else.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return by_itself


def stop_left_behind(pid: int, signum: int, *, seconds: float) -> None:
    """Stop a server whose owner died; the caller holds the folder's lock, so it has no other owner."""
    for each, patience in ((signum, seconds), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.kill(pid, each)
        if wait_until(lambda: not is_alive(pid), seconds=patience):
            return
    raise DevError(f"process {pid} from an earlier run does not end; end it by hand and try again")


def is_full(error: OSError) -> bool:
    """Was it the disk (or our share of it) that had no room?"""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def explain(words: str) -> str:
    """A failed program's own words with what to do in front, where that is known."""
    if "No space left" in words or "Disk quota" in words:
        return f"the disk is full: free about 550 MB and try again ({words})"
    return words


def tail(path: Path, lines: int = 5) -> str:
    """The last lines of a log, joined by ` | `, so that an error stays one line."""
    with suppress(OSError):
        return " | ".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""
