"""Runs curl commands of the documentation against the service in this process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

_FLAGS = {"-sS", "-sSi"}


def run(http: FlaskClient, command: str, variables: Mapping[str, str]) -> TestResponse:
    """What curl would do. `variables` are the shell's; API_URL is this service. Fails on an option it does not know."""
    known = {"API_URL": "", **variables}
    text = re.sub(r"\$([A-Z_]+)", lambda found: known[found[1]], command.replace("\\\n", ""))
    words = iter(shlex.split(text)[1:])
    target, method, headers, data = "", None, {}, None
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, headers[name] = next(words).partition(": ")
            case "-d":
                data = next(words).encode()
            case _ if word not in _FLAGS:
                assert word.startswith("/") and not target, word
                target = word
    return http.open(target, method=method or ("POST" if data else "GET"), headers=headers, data=data)
