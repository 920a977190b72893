"""The API against its own description, by schemathesis: requests that fit it and that do not, examples, sequences of calls.

Always the same requests. `EXPLORE=20 make test ARGS=tests/conformance/test_api_description.py` makes twenty times as many,
new ones each time.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.specs.openapi.schemas import OpenApiSchema
from werkzeug.serving import BaseWSGIServer, make_server

from app.services import EXTENSION
from db import clients
from db.session import Database
from tests.support.api import make_api
from tests.support.courier import make_courier

EXPLORE = int(os.environ.get("EXPLORE", "0"))
RETURN_URL = "https://host.example/"
CODEC = "gbk"  # characters of many scripts, none beyond the first plane
# What no schema can say: these are refused although they are well-formed, and for nothing else.
KNOWN_ONLY_TO_US = {
    "/metadata too_deep",
    "/metadata too_large",
    "/return_url not_allowed",  # the client's own list
    "?cursor invalid_cursor",  # it came with other filters
    "?after invalid_cursor",  # ahead of the feed
    "verification_invalid",  # nobody was given such a token
}
JUDGED_AS_A_WHOLE = (
    "/v1/branding",
    "/v1/branding/preview",
)  # a document's words and colours, by what comes out


# Of all that are well-formed, those that could be somebody's: docs/addresses.md refuses others for their words.
ADDRESSES = st.from_regex(
    r"[a-z][a-z0-9]{2,9}([.+_-][a-z0-9]{1,9})?@[a-z][a-z0-9]{1,9}\.(example|test)", fullmatch=True
)
schemathesis.openapi.format("email", ADDRESSES)


@schemathesis.check
def refused_only_for_what_no_schema_says(_context: Any, response: Any, case: schemathesis.Case) -> None:
    """Completes `positive_data_acceptance`, which must let 422 pass for the sake of those few."""
    if response.status_code == 422 and case.meta and case.meta.generation.mode.is_positive:
        problem = response.json()
        reasons = {
            f"{re.sub('^/metadata/.*', '/metadata', error['pointer'])} {error['code']}"
            for error in problem.get("errors", ())
        }
        assert case.path in JUDGED_AS_A_WHOLE or (reasons or {problem["code"]}) <= KNOWN_ONLY_TO_US, problem


@pytest.fixture
def described(database: Database) -> Iterator[OpenApiSchema]:
    """The running service, by its description, and a key for it."""
    api = make_api(database, consume_limit=0)
    # A test client: its mail goes to the simulator, at once, and its tokens can be read back and used.
    owner = clients.create(database, "tests", (RETURN_URL,), is_test=True)
    courier = make_courier(database, "smtp://127.0.0.1:1")
    app: Any = api.http.application
    app.extensions[EXTENSION] = replace(app.extensions[EXTENSION], kick=courier.drain)
    config: dict[str, Any] = {
        "seed": secrets.randbits(64) if EXPLORE else 1,
        "auth": {"openapi": {"apiKey": {"bearer": owner.key}}},
        "generation": {"codec": CODEC, "max-examples": 12 * (EXPLORE or 1), "deterministic": not EXPLORE},
        "checks": {
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "404", "409", "410", "413", "422", "429"]
            },
            "negative_data_rejection": {
                "expected-statuses": ["400", "401", "404", "406", "413", "415", "422"]
            },
        },
        # It guesses what we want from our words, and then sends what our description forbids.
        "phases": {"fuzzing": {"error-feedback": {"enabled": False}}},
    }
    # Over a socket: schemathesis cannot repeat a request without its key in process.
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        config["base-url"] = f"http://127.0.0.1:{server.server_port}"
        yield schemathesis.openapi.from_dict(
            drawable(api.http.get("/openapi.json").text), config=SchemathesisConfig.from_dict(config)
        )
    finally:
        stop(server, thread)


def drawable(text: str) -> dict[str, Any]:
    """The description, without a range of 850 000 code points that patterns bar: to list them takes hypothesis minutes.

    `CODEC` has none of them; `test_hostile_input.py` sends them.
    """
    barred = json.dumps("\U0003fffe-\U0010ffff")[1:-1]
    assert barred in text
    document: dict[str, Any] = json.loads(text.replace(barred, ""))
    return document


def stop(server: BaseWSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Run:
    """What a run came to: what does not hold, each with the request that shows it, and who answered with success."""

    findings: list[str] = field(default_factory=list)
    succeeded: set[str] = field(default_factory=set)

    def add(self, phase: str, recorder: ScenarioRecorder) -> None:
        for case_id, interaction in recorder.interactions.items():
            if interaction.response is not None and interaction.response.status_code < 300:
                self.succeeded.add(recorder.cases[case_id].value.operation.label)
        for case_id, checks in recorder.checks.items():
            for check in checks:
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    asked = recorder.cases[case_id].value.as_curl_command()
                    self.findings.append(
                        f"{phase}: {check.name}: {failure.title}\n{failure.message}\n{asked}"
                    )


def run(schema: OpenApiSchema) -> Run:
    """All phases with all checks."""
    done = Run()
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                done.add(event.phase.value, event.recorder)
            case events.NonFatalError() | events.FatalError():
                done.findings.append(repr(event))
    return done


def test_the_api_keeps_its_description(described: OpenApiSchema) -> None:
    done = run(described)
    assert not done.findings, "\n\n".join(done.findings)
    calls = {operation.ok().label for operation in described.get_all_operations()}
    assert calls - done.succeeded == set(), "none of these ever went well: nothing was tested of them"
