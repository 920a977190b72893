"""`outbox`: what is being delivered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from app.cli_support import Commands, answer, json_option, open_database, table
from db import ids, outbox, receipts
from db.delivery_state import State
from db.outbox import Stats
from db.views import clock

outbox_commands = Commands("outbox", help="Deliveries.")
_MOST = 1000


@outbox_commands.command("stats")
@json_option
def stats(as_json: bool) -> None:
    """Count deliveries by state, and say how old the oldest of each kind is."""
    found = outbox.stats(open_database())
    answer(asdict(found), as_json, _stats_lines(found))


@outbox_commands.command("list")
@click.option("--status", type=click.Choice([state.value for state in State]), help="Only of this state.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True)
@json_option
def list_(status: str | None, limit: int, as_json: bool) -> None:
    """List deliveries, the newest first."""
    found = outbox.newest(open_database(), State(status) if status else None, limit)
    data = [
        {
            **asdict(item),
            "id": ids.public("dlv", item.id),
            "verification_id": ids.public("ver", item.verification_id),
        }
        for item in found
    ]
    rows = [
        (
            ids.public("dlv", i.id),
            i.status,
            i.attempt_count,
            i.next_attempt_at,
            i.failure_code or i.last_error,
        )
        for i in found
    ]
    answer(data, as_json, table(("DELIVERY", "STATUS", "ATTEMPTS", "NEXT", "LAST ERROR"), rows))


@outbox_commands.command("show")
@click.argument("public_id", metavar="ID")
@json_option
def show(public_id: str, as_json: bool) -> None:
    """Show the receipt of a delivery or verification (dlv_… or ver_…)."""
    from app import presentation, receipt_text  # noqa: PLC0415 (marshmallow takes its time to load)
    from app.schemas import ReceiptSchema  # noqa: PLC0415

    if not (ids.parse("ver", public_id) or ids.parse("dlv", public_id)):
        raise click.BadParameter("an id looks like ver_… or dlv_… and 32 hex digits", param_hint="ID")
    database = open_database()
    receipt = receipts.read_receipt(database, None, outbox.find(database, public_id))
    data = ReceiptSchema().dump(presentation.receipt(receipt)) if as_json else None
    answer(data, as_json, receipt_text.render(receipt).splitlines())


def _stats_lines(found: Stats) -> Iterator[str]:
    yield from table(("STATUS", "COUNT"), list(found.counts.items()))
    ages = {
        "oldest due": found.oldest_due_seconds,
        "oldest ended lease": found.oldest_ended_lease_seconds,
        "oldest unknown": found.oldest_unknown_seconds,
    }
    for name, seconds in ages.items():
        yield f"{name}: " + ("none" if seconds is None else f"{seconds:.1f} s")
    for pause in found.paused:
        yield f"paused: {pause.provider} until {clock(pause.paused_until)} ({pause.kind}, {pause.code})"
