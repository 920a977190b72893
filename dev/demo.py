"""`make demo`: one verification end to end over real HTTP and SMTP, in a throw-away folder."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from dev.children import Printer
from dev.environment import make_folder, write_private_text
from dev.processes import DevError, explain
from dev.run import stop_on_signals
from dev.stack import ROOT, Interrupted, Stack

OVERALL_SECONDS = 400  # above the sum of what the steps may take; past it something hangs
MAIL_SECONDS = 30.0
HTTP_SECONDS = 10.0
TOKEN = re.compile(r"/verify#([0-9A-Z]{4}(?:-?[0-9A-Z]{4}){3})\b")
LOG_LINES = 30
# The demo works on its own parts; somebody's real database or mail account is none of its business.
LEFT_OUT = ("DATABASE_URL", "REDIS_URL", "MAIL_URL", "PUBLIC_URL", "PORT")


class DemoError(Exception):
    """A step that did not do what it should."""


class Demo:
    """The steps in order; each returns what the next needs."""

    def __init__(self, stack: Stack, say: Callable[[str], None]) -> None:
        self.stack, self.say = stack, say
        self.step = "start"
        # Own services only: no proxy of the environment is asked.
        self.http = httpx.Client(timeout=HTTP_SECONDS, trust_env=False)

    def run(self) -> dict[str, Any]:
        """The receipt as JSON. Raises whatever stopped it; `step` says where."""
        self.stack.start()
        self.say(f"started: API {self.stack.urls['API_URL']}, inbox {self.stack.urls['INBOX_URL']}")
        self.step = "key"
        self.http.headers["Authorization"] = f"Bearer {self.stack.create_key('make-demo')}"
        self.step = "worker"
        self.stack.wait_for_worker()
        verification = self._request()
        token = self._token_from_mail(verification["delivery_id"])
        self._consume(token, verification["verification_id"])
        return self._receipt(verification["verification_id"])

    def _request(self) -> dict[str, Any]:
        self.step = "request"
        body = {"account_id": "demo-account", "email": "ada@example.com"}
        answer = self._call("POST", "/v1/verifications", json=body, headers={"Idempotency-Key": "demo-1"})
        verification: dict[str, Any] = answer.json()
        self.say(f"requested: {verification['verification_id']} for {verification['email_masked']}")
        return verification

    def _token_from_mail(self, delivery_id: str) -> str:
        self.step = "mail"
        deadline = time.monotonic() + MAIL_SECONDS
        while time.monotonic() < deadline:
            self.stack.look_for_deaths()
            mails = self.http.get(
                f"{self.stack.urls['INBOX_URL']}/messages", params={"delivery_id": delivery_id}
            ).json()
            if mails:
                return self._token(mails)
            if self.stack.stop_asked.wait(0.05):
                raise Interrupted
        raise DemoError(f"no mail for {delivery_id} within {MAIL_SECONDS:.0f} s")

    def _token(self, mails: list[dict[str, Any]]) -> str:
        self.say(f"mailed: {mails[0]['subject']!r} to {mails[0]['to']} ({mails[0]['message_id']})")
        found = TOKEN.search(mails[0]["text"])
        if found is None:
            raise DemoError("the mail's text has no link with a token")
        return found[1]

    def _consume(self, token: str, verification_id: str) -> None:
        self.step = "consume"
        answer = self._call("POST", "/v1/tokens/consume", json={"token": token}).json()
        if answer["verification_id"] != verification_id:
            raise DemoError(f"the token belongs to {answer['verification_id']}")
        self.say(f"consumed: the account is active since {answer['consumed_at']}")

    def _receipt(self, verification_id: str) -> dict[str, Any]:
        self.step = "receipt"
        address = f"/v1/verifications/{verification_id}/receipt"
        receipt: dict[str, Any] = self._call("GET", address, headers={"Accept": "application/json"}).json()
        text = self._call("GET", address, headers={"Accept": "text/plain"}).text
        self.say(f"\n{text.strip()}\n")
        phase = receipt["verification"]["phase"]
        if phase != "consumed":
            raise DemoError(f"the receipt says {phase}, not consumed")
        return receipt

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self.http.request(method, self.stack.urls["API_URL"] + path, **options)
        if answer.is_error:
            raise DemoError(f"{method} {path} answered {answer.status_code}: {answer.text.strip()[:300]}")
        return answer


def main(results: Path = ROOT / ".run") -> int:
    """0 and `DEMO OK ver_…`, or 1 and `DEMO FAILED step: reason`, as the last line."""
    out, log = Printer(), io.StringIO()
    stop_asked = stop_on_signals()
    watch_the_clock()
    demo: Demo | None = None
    step, folder = "start", None
    try:
        make_folder(results)  # what cannot be kept is not begun
        folder = Path(tempfile.mkdtemp(prefix="countersign-demo-"))
        given = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        given.setdefault("WEB_CONCURRENCY", "1")  # one caller; the second process would only cost time
        stack = Stack(
            folder,
            given,
            printer=Printer(log),
            stop_asked=stop_asked,
            processes=("web", "worker"),
            liked_ports={},
        )
        demo = Demo(stack, out.say)
        try:
            receipt = demo.run()
            step = "result"
            write_receipt(results, receipt)
        finally:
            step = step if step == "result" else demo.step
            signal.alarm(0)
            demo.http.close()  # the web waits for open connections before it ends
            stack.stop(throw_away=True)
    except Exception as error:  # whatever it is becomes the last line
        return failed(out, log, step, error)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    out.say(f"DEMO OK {receipt['verification']['verification_id']}")
    return 0


def watch_the_clock() -> None:
    """The last resort against a hang nobody thought of."""

    def too_late(*_: Any) -> None:
        raise DemoError(f"not done after {OVERALL_SECONDS} s")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(OVERALL_SECONDS)


def write_receipt(results: Path, receipt: Mapping[str, Any]) -> None:
    text = json.dumps(receipt, indent=2, ensure_ascii=False) + "\n"
    write_private_text(results / "demo-receipt.json", text)


def failed(out: Printer, log: io.StringIO, step: str, error: Exception) -> int:
    for line in log.getvalue().splitlines()[-LOG_LINES:]:
        out.say(f"  {line}")
    reason = "interrupted" if isinstance(error, Interrupted) else str(error) or type(error).__name__
    if isinstance(error, OSError):
        reason = explain(reason)
    elif not isinstance(error, DevError | DemoError | Interrupted | httpx.HTTPError):
        reason = f"{type(error).__name__}: {reason}"
    out.say(f"DEMO FAILED {step}: {' '.join(reason.split())}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
