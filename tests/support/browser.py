"""Finds the browser for `tests/browser`: the system's own Chromium or Chrome, because no package of ours brings one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

NAMES = ("chromium", "chromium-browser", "google-chrome")
HOW_TO_GET_ONE = (
    "the browser tests need Chromium: apt-get install chromium, or CHROMIUM=/path/to/chrome make test"
)


def find(environment: Mapping[str, str] = os.environ) -> str | None:
    """The browser's path: what CHROMIUM says, else the first of NAMES on PATH. None: there is none."""
    wanted = (environment["CHROMIUM"],) if environment.get("CHROMIUM") else NAMES
    found = (shutil.which(name, path=environment.get("PATH")) for name in wanted)
    return next(filter(None, found), None)


def may_be_missing(environment: Mapping[str, str] = os.environ) -> bool:
    """On a developer's machine the tests are skipped without one; in CI they fail."""
    return environment.get("CI", "").lower() in {"", "0", "false"}
