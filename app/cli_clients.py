"""`clients` and `keys`: who may call the API."""

from __future__ import annotations

import re

import click

from app import return_urls as urls
from app.cli_branding import branding
from app.cli_support import REFUSED, Commands, answer, end, json_option, open_database, say, table
from db import clients, ids
from db.errors import NameTaken

client_commands = Commands("clients", help="Programs that call the API.")
key_commands = Commands("keys", help="Their API keys.")
client_commands.add_command(branding)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}")


@client_commands.command("create")
@click.argument("name")
@click.option(
    "--return-url", "return_urls", multiple=True, help="Where the page may lead back to; repeatable."
)
@click.option(
    "--test", "is_test", is_flag=True, help="Its mail never leaves the machine (docs/test-keys.md)."
)
@json_option
def create(name: str, return_urls: tuple[str, ...], is_test: bool, as_json: bool) -> None:
    """Make a client and its first API key, which is shown this once."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            "use 1 to 100 letters, digits, spaces, dots, hyphens or underscores", param_hint="NAME"
        )
    for url in return_urls:
        if not urls.is_valid_entry(url):
            raise click.BadParameter(
                "use http(s) URLs without user names or dots as steps", param_hint="--return-url"
            )
    try:
        made = clients.create(open_database(), name, return_urls, is_test=is_test)
    except NameTaken:
        end(f"there is a client named {name} already; `keys create` makes it another key", REFUSED)
    _show_key(made, as_json)


@client_commands.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all clients."""
    found = clients.list_all(open_database())
    data = [
        {
            "client_id": ids.public("cli", client.id),
            "name": client.name,
            "keys": keys,
            "is_test": client.is_test,
            "return_urls": client.return_urls,
            "created_at": client.created_at,
            "disabled_at": client.disabled_at,
        }
        for client, keys in found
    ]
    rows = [
        (
            d["client_id"],
            d["name"],
            d["keys"],
            "yes" if d["is_test"] else None,
            d["created_at"],
            d["disabled_at"],
        )
        for d in data
    ]
    answer(data, as_json, table(("CLIENT", "NAME", "KEYS", "TEST", "CREATED", "DISABLED"), rows))


@client_commands.command("disable")
@click.argument("name")
@json_option
def disable(name: str, as_json: bool) -> None:
    """Switch a client off: its keys stop at once. What it requested before is still delivered."""
    client = clients.disable(open_database(), name)
    data = {
        "client_id": ids.public("cli", client.id),
        "name": client.name,
        "disabled_at": client.disabled_at,
    }
    answer(data, as_json, [f"{client.name} is disabled"])


@key_commands.command("create")
@click.argument("client_name")
@json_option
def create_key(client_name: str, as_json: bool) -> None:
    """Make another key for a client; the others go on working."""
    _show_key(clients.create_key(open_database(), client_name), as_json)


@key_commands.command("revoke")
@click.argument("key")
@json_option
def revoke_key(key: str, as_json: bool) -> None:
    """Stop a key. KEY is its beginning, cs_live_<prefix> or cs_test_<prefix>; the whole works too."""
    revoked_at = clients.revoke_key(open_database(), key)
    answer({"revoked_at": revoked_at}, as_json, ["revoked"])


def _show_key(made: clients.NewKey, as_json: bool) -> None:
    data = {
        "client_id": ids.public("cli", made.client.id),
        "name": made.client.name,
        "api_key": made.key,
    }
    answer(data, as_json, [made.key])
    say(f"A key for {made.client.name}: keep it, it is not shown again.")
