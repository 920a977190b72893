"""`suppressions`: mailboxes that a client's mail must not reach. They are shown masked, in the form that is compared."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli_support import REFUSED, Commands, answer, end, json_option, open_database, table
from db import suppressions

suppression_commands = Commands("suppressions", help="Mailboxes that get no mail.")
_MOST = 1000
_LONGEST_REASON = 200
_DAY = 86_400


@suppression_commands.command("list")
@click.option("--client", help="Only of this client.")
@click.option("--email", help="Only this address, and others of the same mailbox.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True)
@json_option
def list_(client: str | None, email: str | None, limit: int, as_json: bool) -> None:
    """List suppressed mailboxes, the newest first."""
    mailbox = _mailbox(email, "--email") if email is not None else None
    found = suppressions.newest(open_database(), client, mailbox, limit)
    rows = [(s.client, s.email_masked, s.reason, s.created_at, s.expires_at) for s in found]
    head = ("CLIENT", "MAILBOX", "REASON", "SINCE", "UNTIL")
    answer([asdict(each) for each in found], as_json, table(head, rows))


@suppression_commands.command("add")
@click.argument("client")
@click.argument("email")
@click.option("--reason", required=True, help="Why, for whoever finds it later.")
@click.option("--days", type=click.FloatRange(0, 36_500, min_open=True), help="For so long, else for good.")
@json_option
def add(client: str, email: str, reason: str, days: float | None, as_json: bool) -> None:
    """Send a client's mail to a mailbox no more: what waits for it fails as `suppressed`."""
    text = " ".join(reason.split())
    if not text or len(text) > _LONGEST_REASON or not text.isprintable() or "@" in text:
        raise click.BadParameter(
            f"write 1 to {_LONGEST_REASON} characters, without an address", param_hint="--reason"
        )
    mailbox, seconds = _mailbox(email, "EMAIL"), None if days is None else days * _DAY
    done, is_new = suppressions.add(open_database(), client, mailbox, text, seconds=seconds)
    words = "suppressed" if is_new else "suppressed already; reason and end are now these"
    answer({**asdict(done), "changed": is_new}, as_json, [f"{done.email_masked} of {client} is {words}"])


@suppression_commands.command("remove")
@click.argument("client")
@click.argument("email")
@json_option
def remove(client: str, email: str, as_json: bool) -> None:
    """Let a client's mail go to a mailbox again. What failed meanwhile stays so: request it anew."""
    if not suppressions.remove(open_database(), client, _mailbox(email, "EMAIL")):
        end(f"that mailbox is not suppressed for {client}; nothing was changed", REFUSED)
    answer({"client": client, "changed": True}, as_json, [f"mail of {client} goes there again"])


def _mailbox(email: str, where: str) -> str:
    """The form in which addresses are compared. Refuses what is no address, without quoting it."""
    from app.addresses import check  # noqa: PLC0415 (email_validator takes its time to load)
    from app.errors import InvalidRequest  # noqa: PLC0415

    try:
        return check(email, allow_reserved=True).canonical
    except InvalidRequest as error:
        raise click.BadParameter(error.errors[0].detail, param_hint=where) from None
