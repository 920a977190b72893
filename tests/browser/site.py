"""The service and a host's page on loopback, with every request that reached them, and people who visit with a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect
from werkzeug.serving import WSGIRequestHandler, make_server

from db.session import Database
from db.tokens import grouped
from tests.support.api import Api, make_api

PHONE = {"width": 320, "height": 640}  # the narrowest that WCAG 1.4.10 asks for
DESKTOP = {"width": 1280, "height": 800}
Wsgi = Callable[[dict[str, Any], Any], Any]
_numbers = count(1)


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Failing tests show the service's own access log."""


@dataclass
class Served:
    """A server on loopback and what was asked of it: request lines and all headers, as they came."""

    url: str
    seen: list[dict[str, Any]] = field(default_factory=list)

    @property
    def calls(self) -> list[str]:
        """`GET /path?query` of each request, in order."""
        return [f"{environ['REQUEST_METHOD']} {environ['REQUEST_URI']}" for environ in self.seen]

    @property
    def heads(self) -> str:
        """Every request line and header, but for bodies all that reached it."""
        return "\n".join(
            f"{name}: {value}" for environ in self.seen for name, value in environ.items() if name.isupper()
        )


@contextmanager
def serve(app: Wsgi) -> Iterator[Served]:
    """A real server for a WSGI application."""
    served = Served("")

    def recording(environ: dict[str, Any], start_response: Any) -> Any:
        served.seen.append(environ)
        return app(environ, start_response)

    server = make_server("127.0.0.1", 0, recording, threaded=True, request_handler=_Quiet)
    served.url = f"http://127.0.0.1:{server.port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def host_page(_: dict[str, Any], start_response: Any) -> list[bytes]:
    """The page of the program that asked for the verification."""
    start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
    return [
        b"<!doctype html><html lang=en><link rel=icon href=data:,><title>Host</title><h1>Welcome back</h1>"
    ]


@dataclass
class Site:
    """The service, the host's page, and a client that may send people there."""

    served: Served
    host: Served
    api: Api
    person: int = 0

    @property
    def url(self) -> str:
        return f"{self.served.url}/verify"

    def made(self, *, again: bool = False, **changes: Any) -> tuple[str, str]:
        """A verification's id and its token as the mail shows it; `again`: one more mail for the last one's account."""
        if not again:
            self.person = next(_numbers)
        asked = {
            "account_id": f"account-{self.person}",
            "email": f"ada{self.person}@example.com",
            "return_url": f"{self.host.url}/done?from=mail",
            **changes,
        }
        answer = self.api.create(f"key-{next(_numbers)}", **asked)
        assert answer.status_code == 202, answer.text
        verification_id = answer.get_json()["verification_id"]
        return verification_id, grouped(self.api.token(verification_id))

    def phase(self, verification_id: str) -> str:
        phase: str = self.api.get(f"/v1/verifications/{verification_id}").get_json()["phase"]
        return phase


@contextmanager
def opened(database: Database, **settings: Any) -> Iterator[Site]:
    """The site on this database."""
    with serve(host_page) as host:
        api = make_api(database, return_urls=(f"{host.url}/done",), **settings)
        with serve(api.http.application.wsgi_app) as served:
            yield Site(served, host, api)


class Visitor:
    """One person's browser: cookies and history of its own. `problems` must be empty in the end."""

    def __init__(self, browser: Browser, site: Site, **options: Any) -> None:
        self.site = site
        self.context: BrowserContext = browser.new_context(
            **{"locale": "en-GB", "viewport": DESKTOP, **options}
        )
        self.context.set_default_timeout(5000)
        self.requests: list[Request] = []
        self.problems: list[str] = []
        self.context.on("request", self._keep)
        self.context.on("weberror", lambda error: self.problems.append(str(error.error)))
        self.context.on("console", self._note)
        self.page: Page = self.context.new_page()

    def _keep(self, request: Request) -> None:
        self.requests.append(request)

    def _note(self, message: Any) -> None:
        # A 4xx answer is an "error" of the console as well; a violation of the policy is always one.
        if "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def open(self, fragment: str = "") -> Page:
        """Follow the mail's link (or, without a fragment, type the address)."""
        self.page.goto(f"{self.site.url}{'#' + fragment if fragment else ''}")
        return self.page

    def press(self, action: str) -> None:
        """Press `confirm` or `revoke` and wait for the answer."""
        with self.page.expect_navigation():
            self.page.click(f"button[value={action}]")

    def sees(self, title: str) -> None:
        expect(self.page.get_by_role("heading", level=1)).to_have_text(title)

    @property
    def lang(self) -> str | None:
        return self.page.locator("html").get_attribute("lang")

    def findings(self) -> list[str]:
        """What axe-core has to say of the page, light and dark; contrast that it could not judge counts as well."""
        self.page.evaluate(AXE_SCRIPT)
        self.page.emulate_media(color_scheme="light")
        found = self._axe("{}")
        self.page.emulate_media(color_scheme="dark")
        return found + self._axe("{runOnly: ['color-contrast']}")

    def _axe(self, options: str) -> list[str]:
        found = self.page.evaluate(f"axe.run(document, {options})")
        unsure = [rule for rule in found["incomplete"] if rule["id"] == "color-contrast"]
        return [
            f"{rule['id']}: {node['html']}"
            for rule in [*found["violations"], *unsure]
            for node in rule["nodes"]
        ]

    def scrolls_sideways(self) -> bool:
        """Whether the page is wider than its window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))

    def focus(self) -> str:
        """What has the focus: the element's words (a field's name, a heading's or button's text)."""
        return str(
            self.page.evaluate("document.activeElement.name || document.activeElement.innerText.trim()")
        )

    def focus_is_marked(self) -> bool:
        """Whether a thick outline shows where the focus is."""
        style = "getComputedStyle(document.activeElement)"
        return bool(
            self.page.evaluate(f"{style}.outlineStyle === 'solid' && parseFloat({style}.outlineWidth) >= 3")
        )
