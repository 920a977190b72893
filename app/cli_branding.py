"""`clients branding`: show or change how a client's mail looks. An operator may link anywhere; all else is as in the API."""

from __future__ import annotations

import json
from typing import IO, Any

import click

from app import strict_json
from app.cli_support import REFUSED, USAGE, Command, answer, end, json_option, open_database, say
from app.errors import MalformedJson
from db import brandings, ids
from db.brandings import StoredBranding
from tasks import branding_trial
from tasks.branding import InvalidBranding
from tasks.branding_rules import LARGEST


@click.command("branding", cls=Command)
@click.argument("name")
@click.option(
    "--set", "file", type=click.File("rb"), help="A JSON document (docs/branding.md); - reads it from stdin."
)
@click.option("--reset", is_flag=True, help="Back to the service's own words.")
@json_option
def branding(name: str, file: IO[bytes] | None, reset: bool, as_json: bool) -> None:
    """Show, set or reset how a client's mail looks. It counts for verifications that are requested afterwards."""
    if file is not None and reset:
        raise click.UsageError("--set and --reset exclude each other")
    database = open_database()
    body = _read(file) if file is not None else None
    client_id = brandings.client_named(database, name)
    if body is not None:
        brandings.set_current(database, client_id, body, hourly=0)
    elif reset:
        brandings.reset(database, client_id)
    stored = brandings.current(database, client_id)
    answer(_data(stored), as_json, _lines(stored))


def _read(file: IO[bytes]) -> dict[str, Any]:
    """What to store. Ends the command for what is no branding."""
    text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        end(f"the document is larger than {LARGEST} bytes", REFUSED)
    try:
        return branding_trial.accept(strict_json.parse(text), hosts=None).stored()
    except MalformedJson:
        end("the file is not JSON in UTF-8, or has duplicate keys, NaN or Infinity", USAGE)
    except InvalidBranding as invalid:
        for fault in invalid.faults:
            say(f"{fault.pointer or '/'}: {fault.detail} ({fault.code})")
        end("the branding was not set", REFUSED)


def _data(stored: StoredBranding | None) -> dict[str, Any]:
    if stored is None:
        return {"branding_id": None, "set_at": None, "branding": None}
    document = {key: value for key, value in stored.body.items() if key != "shape"}
    return {"branding_id": ids.public("brd", stored.id), "set_at": stored.created_at, "branding": document}


def _lines(stored: StoredBranding | None) -> list[str]:
    if stored is None:
        return ["the service's own words"]
    return json.dumps(_data(stored)["branding"], indent=2, ensure_ascii=False).split("\n")
