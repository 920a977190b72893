"""`explain`: what became of one mail, from whatever somebody has in hand."""

from __future__ import annotations

import click

from app import receipt_text
from app.cli_outbox import receipt_data
from app.cli_support import Command, answer, json_option, open_database, say, table
from db import explain as explaining
from db import ids, receipts
from db.logs import mask
from db.views import Receipt, clock


@click.command("explain", cls=Command)
@click.argument("anything", metavar="ANYTHING")
@json_option
def explain(anything: str, as_json: bool) -> None:
    """Show the receipt of what an id means: ver_…, dlv_…, req_…, a Message-ID, a provider's id, an idempotency key."""
    database = open_database()
    found = explaining.find(database, anything.strip())
    shown = [receipts.read_receipt(database, None, verification_id) for verification_id in found]
    lines = receipt_text.render(shown[0]).splitlines()
    if len(shown) > 1:
        most = "at least " if len(shown) == explaining.MOST else ""
        say(f"{most}{len(shown)} verifications are known by that, the newest first; explain one of them")
        lines = table(
            ("VERIFICATION", "CREATED (UTC)", "ACCOUNT", "STATUS", "DELIVERY"), list(map(_row, shown))
        )
    answer([receipt_data(receipt) for receipt in shown] if as_json else None, as_json, lines)


def _row(receipt: Receipt) -> tuple[object, ...]:
    verification, delivery = receipt.known.verification, receipt.known.delivery
    return (
        ids.public("ver", verification.id),
        clock(verification.created_at).removesuffix(" UTC"),
        mask(verification.account_id),
        verification.status,
        delivery.status,
    )
