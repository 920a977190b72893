"""What the embedded servers share: a locked folder, a port, a log, a process that dies with us."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.processes import DevError, FolderLock, die_with_parent, explain, free_port, stop_process, tail

START_SECONDS = 30.0  # crash recovery included
STOP_SECONDS = 20.0
PORT_TRIES = 5
LARGEST_LOG = 8 * 2**20  # bytes; a longer log is begun anew at the next start


class Server:
    """One server process over one folder. `start()` after `stop()` or `kill()` keeps folder and port.

    Start it from a thread that outlives it, best the main thread: the kernel ends it with that thread.
    """

    name = "server"
    end_signal: int = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = Path(folder).absolute()
        self.log = self.folder / f"{self.name}.log"
        self._lock = FolderLock(self.folder)
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; 0 before the first start when none was asked for."""
        return self._port

    @property
    def pid(self) -> int:
        """The id of the running server's main process; `DevError` when it is not running."""
        if self._process is None or self._process.poll() is not None:
            raise DevError(f"{self.name} in {self.folder} is not running")
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait until it answers. Does nothing when it runs already. Raises `DevError`."""
        if self.is_running():
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._lock.acquire():
            raise DevError(f"{self.name} in {self.folder} is in use by process {self._lock.holder()}")
        try:
            self._prepare()
            self._start_on_a_port()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, signum: int | None = None) -> None:
        """Stop with `signum` (the server's own clean signal by default), wait, let go of the folder."""
        if self._process is not None:
            stop_process(self._process, signum or self.end_signal, seconds=STOP_SECONDS)
            self._process = None
        self._lock.release()

    def _start_on_a_port(self) -> None:
        asked = self._port
        for _ in range(PORT_TRIES):
            self._port = asked or free_port()
            if self._answers():
                return
            reason = tail(self.log)
            if "ddress already in use" not in reason:
                raise DevError(
                    f"{self.name} did not start: {explain(reason) or 'no output'} (log: {self.log})"
                )
            if asked:
                raise DevError(f"port {asked} for {self.name} is taken: free it or choose another")
        raise DevError(f"{self.name} found no free port on 127.0.0.1")

    def _answers(self) -> bool:
        """Start the process on `self.port`; False when it ended or stayed silent (the log says why)."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make the folder ready: data, leftovers of an earlier run."""
        raise NotImplementedError

    def _spawn(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        mode = "ab" if self.log.exists() and self.log.stat().st_size < LARGEST_LOG else "wb"
        with self.log.open(mode) as log:
            os.fchmod(log.fileno(), 0o600)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(self.end_signal),  # noqa: PLW1509 (one C call, see there)
                **options,
            )
        return self._process

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def as_arguments(settings: Mapping[str, str], flag: str) -> list[str]:
    """`{"a": "1"}` with flag `-c` -> `["-c", "a=1"]`."""
    return [part for name, value in settings.items() for part in (flag, f"{name}={value}")]
