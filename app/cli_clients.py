"""`clients` and `keys`: who may call the API."""

from __future__ import annotations

import re

import click

from app import return_urls as urls
from app.cli_branding import branding
from app.cli_support import REFUSED, Commands, answer, end, json_option, open_database, say, table
from db import clients, ids
from db.errors import NameTaken
from db.views import clock

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
    _check(return_urls, "--return-url")
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
            " ".join(client.return_urls) or None,
            d["created_at"],
            d["disabled_at"],
        )
        for d, (client, _) in zip(data, found, strict=True)
    ]
    answer(
        data, as_json, table(("CLIENT", "NAME", "KEYS", "TEST", "RETURN URLS", "CREATED", "DISABLED"), rows)
    )


@client_commands.command("disable")
@click.argument("name")
@json_option
def disable(name: str, as_json: bool) -> None:
    """Switch a client off: its keys stop at once. What it requested before is still delivered."""
    done = clients.disable(open_database(), name)
    words = "disabled: its keys stopped working" if done.changed else "disabled already; nothing was changed"
    _show_change(done, as_json, f"{done.client.name} is {words}")


@client_commands.command("enable")
@click.argument("name")
@json_option
def enable(name: str, as_json: bool) -> None:
    """Switch a client on again: the keys that were not revoked work at once."""
    done = clients.enable(open_database(), name)
    words = "enabled: its keys work again" if done.changed else "enabled already; nothing was changed"
    _show_change(done, as_json, f"{done.client.name} is {words}")


@client_commands.command("return-urls")
@click.argument("name")
@click.option("--add", multiple=True, metavar="URL", help="Let the page lead back there; repeatable.")
@click.option("--remove", multiple=True, metavar="URL", help="No longer let it; repeatable.")
@json_option
def return_urls(name: str, add: tuple[str, ...], remove: tuple[str, ...], as_json: bool) -> None:
    """Show or change where the page may lead back to. What was requested before keeps its own."""
    _check(add, "--add")
    database = open_database()
    before = clients.named(database, name).return_urls
    missing = [url for url in remove if url not in before]
    if missing:
        end(f"{name} has no return URL {', '.join(missing)}; nothing was changed", REFUSED)
    done = clients.change_return_urls(database, name, add=add, remove=remove)
    data = {"name": done.client.name, "return_urls": done.client.return_urls, "changed": done.changed}
    answer(data, as_json, done.client.return_urls or ["none"])
    if add or remove:
        say(f"{name}: return URLs {'changed' if done.changed else 'were so already; nothing was changed'}")


def _check(return_urls: tuple[str, ...], option: str) -> None:
    for url in return_urls:
        if not urls.is_valid_entry(url):
            raise click.BadParameter(
                "use http(s) URLs without user names or dots as steps", param_hint=option
            )


def _show_change(done: clients.Changed, as_json: bool, words: str) -> None:
    data = {
        "client_id": ids.public("cli", done.client.id),
        "name": done.client.name,
        "disabled_at": done.client.disabled_at,
        "changed": done.changed,
    }
    answer(data, as_json, [words])


@key_commands.command("create")
@click.argument("client_name")
@json_option
def create_key(client_name: str, as_json: bool) -> None:
    """Make another key for a client; the others go on working."""
    _show_key(clients.create_key(open_database(), client_name), as_json)


@key_commands.command("list")
@click.argument("client_name")
@json_option
def list_keys(client_name: str, as_json: bool) -> None:
    """List a client's keys by their beginnings; the keys themselves are not stored."""
    found = clients.list_keys(open_database(), client_name)
    data = [{"key": k.name, "created_at": k.created_at, "revoked_at": k.revoked_at} for k in found]
    rows = [(k.name, k.created_at, k.revoked_at) for k in found]
    answer(data, as_json, table(("KEY", "CREATED", "REVOKED"), rows))


@key_commands.command("revoke")
@click.argument("key")
@json_option
def revoke_key(key: str, as_json: bool) -> None:
    """Stop a key. KEY is its beginning, cs_live_<prefix> or cs_test_<prefix>; the whole works too."""
    done = clients.revoke_key(open_database(), key)
    data = {
        "client": done.client.name,
        "key": done.key.name,
        "revoked_at": done.revoked_at,
        "changed": done.changed,
        "keys": done.working,
    }
    since = "" if done.changed else f" already, since {clock(done.revoked_at)}; nothing was changed"
    answer(data, as_json, [f"{done.key.name} of {done.client.name} is revoked{since}"])
    if done.working == 0:
        say(f"{done.client.name} has no working key left: `keys create {done.client.name}` makes one.")


def _show_key(made: clients.NewKey, as_json: bool) -> None:
    data = {
        "client_id": ids.public("cli", made.client.id),
        "name": made.client.name,
        "api_key": made.key,
    }
    answer(data, as_json, [made.key])
    say(f"A key for {made.client.name}: keep it, it is not shown again.")
