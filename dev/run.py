"""`make run`: a whole Countersign in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dev.children import Printer
from dev.environment import make_folder, read_values, write_private
from dev.processes import DevError, FolderLock, die_with_parent, explain
from dev.stack import ROOT, Interrupted, Stack, status_of

CLIENT = "make-run"
NOBODY = "ver_" + 32 * "0"
NAMES = ("API_URL", "API_KEY", "INBOX_URL", "FLOWER_URL", "OPS_URL", "DATABASE_URL", "REDIS_URL")


def main(folder: Path = ROOT / ".run") -> int:
    """0 after a stop that was asked for, 1 with a line that says what is wrong."""
    printer = Printer()
    stop_asked = stop_on_signals()
    try:
        make_folder(folder)
        lock = FolderLock(folder)
        if not lock.acquire():
            raise DevError(
                f"make run is already going in this folder (process {lock.holder()}): use it (its URLs are "
                "in .run/env) or stop it first"
            )
        return run(folder, printer, stop_asked)
    except DevError as error:
        printer.line("run", str(error))
        return 1


def stop_on_signals() -> threading.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set, however often they come."""
    asked = threading.Event()

    def ask(*_: Any) -> None:
        asked.set()

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, ask)
    if "MAKELEVEL" in os.environ:  # make is our parent; if it is killed nobody is left to stop us
        die_with_parent(signal.SIGTERM, os.getppid())()
    return asked


def run(folder: Path, printer: Printer, stop_asked: threading.Event) -> int:
    terminal = poll_terminal()
    (folder / "env").unlink(missing_ok=True)  # it would name ports of the run before
    stack = Stack(folder, os.environ, printer=printer, stop_asked=stop_asked)
    try:
        stack.start()
        key = usable_key(stack, folder)
        stack.wait_for_worker()
        announce(stack, printer, key)
        watch(stack, stop_asked, terminal)
        code = 0
    except Interrupted:
        code = 0
    except (DevError, OSError) as error:
        for line in explain(str(error)).splitlines():
            printer.line("run", line)
        code = 1
    finally:
        printer.line("run", "stopping")
        stack.stop()
    printer.line("run", "stopped; the data stays in .run")
    return code


def poll_terminal() -> select.poll:
    """Something to ask whether the terminal was lost; make it while there is one.

    A lost terminal signals only its session's leader, which over `ssh -t` is make, and make would wait for us.
    """
    terminal = select.poll()
    if sys.stdout.isatty():
        terminal.register(sys.stdout.fileno(), 0)  # a hang-up is told without being asked for
    return terminal


def watch(stack: Stack, stop_asked: threading.Event, terminal: select.poll) -> None:
    """Until a stop is asked for or the terminal is gone; raises `DevError` when a part ends by itself."""
    while not stop_asked.wait(0.2) and not terminal.poll(0):
        stack.look_for_deaths()


def usable_key(stack: Stack, folder: Path) -> str:
    """The API key of the run before while it still works, else a new one; kept beside the secrets."""
    kept = read_values(folder / "secrets")
    key = kept.get("API_KEY", "")
    if not key or not works(stack.urls["API_URL"], key):
        key = stack.create_key(CLIENT)
        write_private(folder / "secrets", {**kept, "API_KEY": key})
    return key


def works(api_url: str, key: str) -> bool:
    """A key that is refused answers 401 or 403; a good one finds that there is no such verification."""
    answer = status_of(f"{api_url}/v1/verifications/{NOBODY}", {"Authorization": f"Bearer {key}"})
    return answer not in (0, 401, 403)


def announce(stack: Stack, printer: Printer, key: str) -> None:
    """Write `.run/env` first, then print: whoever waits for READY finds the file."""
    urls = {**stack.urls, "API_KEY": key}
    write_private(stack.folder / "env", {name: urls[name] for name in NAMES})
    printer.say()
    for name, label in (
        ("API_URL", "API"),
        ("INBOX_URL", "inbox"),
        ("FLOWER_URL", "Flower"),
        ("OPS_URL", "ops pages"),
        ("DATABASE_URL", "PostgreSQL"),
        ("REDIS_URL", "Redis"),
    ):
        printer.say(f"  {label:<11} {urls[name] or 'yours (MAIL_URL)'}")
    printer.say("  passwords   .run/secrets (ops pages: OPS_PASSWORD; Flower: FLOWER_BASIC_AUTH)")
    printer.say()
    printer.say("Try it (the mail appears in the inbox):")
    printer.say()
    printer.say(curl(urls["API_URL"], key))
    printer.say()
    printer.say("READY")


def curl(api_url: str, key: str) -> str:
    """A request to paste into another terminal; repeated, it answers with the same verification."""
    return (
        f"curl -sw '\\n' {api_url}/v1/verifications -H 'Authorization: Bearer {key}' "
        "-H 'Content-Type: application/json' -H 'Idempotency-Key: first-try' "
        """-d '{"account_id": "account-1", "email": "ada@example.com"}'"""
    )


if __name__ == "__main__":
    sys.exit(main())
