"""`make run`: a whole Countersign in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import hashlib
import os
import secrets
import select
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dev.children import Printer
from dev.environment import make_folder, read_values, write_private
from dev.given import check_given, mail_servers, masked
from dev.processes import DevError, FolderLock, die_with_parent, explain
from dev.stack import NOBODY, ROOT, Interrupted, Stack, status_of

CLIENT, TEST_CLIENT = "make-run", "make-run-test"
NAMES = (
    "API_URL",
    "API_KEY",
    "TEST_API_KEY",
    "INBOX_URL",
    "FLOWER_URL",
    "OPS_URL",
    "DATABASE_URL",
    "REDIS_URL",
)
# What the Procfile's processes need besides (with .run/secrets), so that a second worker can be started by hand.
PROCESS_NAMES = ("PUBLIC_URL", "MAIL_URL", "MAIL_FROM", "ALLOW_RESERVED_DOMAINS")
REQUEST = """\
curl -sSw '\\n' "$API_URL/v1/verifications" -H "Authorization: Bearer $API_KEY" -H 'Content-Type: application/json' \\
  -H 'Idempotency-Key: welcome-42' -d '{"account_id": "42", "email": "ada@example.com"}'"""


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
        check_given(os.environ)
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
    (folder / "env").unlink(missing_ok=True)  # of a run that was killed
    stack = Stack(folder, os.environ, printer=printer, stop_asked=stop_asked)
    try:
        stack.start()
        key, test_key = usable_key(stack, folder), usable_key(stack, folder, is_test=True)
        stack.wait_for_worker()
        announce(stack, printer, key, test_key)
        watch(stack, stop_asked, terminal)
        code = 0
    except Interrupted:
        code = 0
    except (DevError, OSError) as error:
        words = str(error) if isinstance(error, DevError) else explain(str(error))
        for line in words.splitlines():
            printer.line("run", line)
        code = 1
    finally:
        printer.line("run", "stopping")
        (folder / "env").unlink(missing_ok=True)  # it would name what answers no more
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


def usable_key(stack: Stack, folder: Path, *, is_test: bool = False) -> str:
    """The API key that was used with this database before while it works, else a new one, kept in `keys`."""
    api_url, name = stack.urls["API_URL"], database_name(stack) + ("_test" if is_test else "")
    client = TEST_CLIENT if is_test else CLIENT
    kept = read_values(folder / "keys")
    key = kept.get(name, "")
    if not key or not works(api_url, key):
        key = stack.create_key(client, is_test=is_test)
        if not works(api_url, key):
            raise DevError(f"the API refuses a new key of the client {client}: was that client disabled?")
        write_private(folder / "keys", {**kept, name: key})
    return key


def database_name(stack: Stack) -> str:
    """A name for the database in use: ours, whatever its port, or a digest of where the given one is."""
    if any(server.name == "postgres" for server in stack.servers):
        return "embedded"
    parts = urlsplit(stack.urls["DATABASE_URL"])
    place = f"{parts.username}@{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"given_{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def works(api_url: str, key: str) -> bool:
    """A key that is refused answers 401 or 403; a good one finds that there is no such verification."""
    answer = status_of(f"{api_url}/v1/verifications/{NOBODY}", {"Authorization": f"Bearer {key}"})
    return answer not in (0, 401, 403)


def announce(stack: Stack, printer: Printer, key: str, test_key: str) -> None:
    """Write `.run/env` first, then print: whoever waits for READY finds the file."""
    urls = {**stack.urls, "API_KEY": key, "TEST_API_KEY": test_key}
    processes = {name: stack.environment[name] for name in PROCESS_NAMES}
    write_private(stack.folder / "env", {**{name: urls[name] for name in NAMES}, **processes})
    has_ops = status_of(urls["OPS_URL"]) not in (0, 404)
    for line in banner(urls, mail_url=stack.environment["MAIL_URL"], has_ops=has_ops):
        printer.say(line)
    printer.say("READY")


def banner(urls: Mapping[str, str], *, mail_url: str, has_ops: bool) -> list[str]:
    """What a person at the terminal wants to know. No password but the API keys, which are there to be used."""
    inbox = urls["INBOX_URL"]
    mail = inbox or mail_servers(mail_url)
    shown = [
        ("API", urls["API_URL"]),
        ("inbox" if inbox else "mail to", mail if inbox else f"{mail} (your MAIL_URL)"),
        ("Flower", urls["FLOWER_URL"]),
        *([("ops pages", urls["OPS_URL"])] if has_ops else []),
        ("PostgreSQL", masked(urls["DATABASE_URL"])),
        ("Redis", masked(urls["REDIS_URL"])),
        ("test key", f"{urls['TEST_API_KEY']}: no mail, docs/test-keys.md"),
        (
            "passwords",
            "in .run/secrets: FLOWER_BASIC_AUTH"
            + (", OPS_PASSWORD" if has_ops else "")
            + "; URLs in .run/env",
        ),
    ]
    where = (
        "the mail appears in the inbox" if inbox else f"the mail goes out to {mail}: put in your own address"
    )
    return [
        "",
        *(f"  {label:<11} {value}" for label, value in shown),
        "",
        f"Try it ({where}):",
        "",
        *curl(urls["API_URL"], urls["API_KEY"]).splitlines(),
        "",
    ]


def curl(api_url: str, key: str) -> str:
    """The README's request with values put in, for an account that there is not yet: after a restart, too, a mail comes."""
    fresh = secrets.token_hex(3)
    asked = REQUEST.replace("welcome-42", f"welcome-{fresh}").replace(
        '"account_id": "42"', f'"account_id": "{fresh}"'
    )
    return asked.replace("$API_URL", api_url).replace("$API_KEY", key)


if __name__ == "__main__":
    sys.exit(main())
