"""`outbox`: what is being delivered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from app import receipt_text
from app.cli_operations import cancel, resolve, retry
from app.cli_support import Commands, answer, json_option, open_database, table
from db import ids, outbox, receipts
from db.config import oscillation_limit
from db.delivery_state import LIVE, State
from db.logs import mask
from db.outbox import Listed, Stats, Wanted
from db.views import Receipt, clock

outbox_commands = Commands("outbox", help="Deliveries.")
for operation in (retry, cancel, resolve):
    outbox_commands.add_command(operation)
_MOST = 1000
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _since(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    """An instant, given as one or as how long ago."""
    if value is None:
        return None
    try:
        if ago := _AGO.fullmatch(value):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        at = datetime.fromisoformat(value)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter("write 30m, 2h, 7d, or a time like 2026-01-31T12:00:00") from None


@outbox_commands.command("stats")
@json_option
def stats(as_json: bool) -> None:
    """Count deliveries by state, and say how old the oldest of each kind is."""
    found = outbox.stats(open_database(), oscillation_limit())
    unknown = found.oldest_unknown_id
    data = {**asdict(found), "oldest_unknown_id": ids.public("dlv", unknown) if unknown else None}
    answer(data, as_json, _stats_lines(found))


@outbox_commands.command("list")
@click.option("--status", type=click.Choice([state.value for state in State]), help="Only of this state.")
@click.option(
    "--oscillating", is_flag=True, help="Only unfinished ones with more leases than OSCILLATION_LIMIT."
)
@click.option("--client", help="Only of this client.")
@click.option("--account", help="Only of accounts that their client calls so.")
@click.option("--since", callback=_since, help="Only requested after: 30m, 2h, 7d ago, or a time in UTC.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, show_default=True)
@json_option
def list_(
    *,
    status: str | None,
    oscillating: bool,
    client: str | None,
    account: str | None,
    since: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List deliveries, the newest first."""
    wanted = Wanted(
        status=State(status) if status else None,
        client=client,
        account=account,
        since=since,
        more_leases_than=oscillation_limit() if oscillating else None,
    )
    found = outbox.newest(open_database(), wanted, limit)
    answer([_listed_data(item) for item in found], as_json, table(_COLUMNS, [_row(item) for item in found]))


_COLUMNS = (
    *("DELIVERY", "CREATED (UTC)", "CLIENT", "ACCOUNT", "TO", "STATUS", "ATTEMPTS", "LEASES", "NEXT (UTC)"),
    *("LAST ERROR", "VERIFICATION"),
)


def _row(item: Listed) -> tuple[object, ...]:
    last_error = item.last_error if item.status in LIVE else None  # of what has ended it is history
    return (
        ids.public("dlv", item.id),
        _second(item.created_at),
        f"{item.client} (test)" if item.is_test else item.client,
        mask(item.account_id),
        item.email_masked,
        item.status,
        item.attempt_count,
        item.lease_token,
        _second(item.next_attempt_at),
        item.failure_code or last_error,
        ids.public("ver", item.verification_id),
    )


def _listed_data(item: Listed) -> dict[str, Any]:
    return {
        **asdict(item),
        "id": ids.public("dlv", item.id),
        "verification_id": ids.public("ver", item.verification_id),
        "account_id": mask(item.account_id),
    }


def _second(at: datetime | None) -> str | None:
    return clock(at).removesuffix(" UTC") if at else None


@outbox_commands.command("show")
@click.argument("public_id", metavar="ID")
@json_option
def show(public_id: str, as_json: bool) -> None:
    """Show the receipt of a delivery or verification (dlv_… or ver_…)."""
    if not (ids.parse("ver", public_id) or ids.parse("dlv", public_id)):
        raise click.BadParameter("an id looks like ver_… or dlv_… and 32 hex digits", param_hint="ID")
    database = open_database()
    receipt = receipts.read_receipt(database, None, outbox.find(database, public_id))
    answer(receipt_data(receipt) if as_json else None, as_json, receipt_text.render(receipt).splitlines())


def receipt_data(receipt: Receipt) -> Any:
    """A receipt as the API shows it."""
    from app import presentation  # noqa: PLC0415 (marshmallow takes its time to load)
    from app.schemas import ReceiptSchema  # noqa: PLC0415

    return ReceiptSchema().dump(presentation.receipt(receipt))


def _stats_lines(found: Stats) -> Iterator[str]:
    yield from table(("STATUS", "COUNT"), list(found.counts.items()))
    ages = {
        "oldest due": found.oldest_due_seconds,
        "oldest ended lease": found.oldest_ended_lease_seconds,
        "oldest unknown": found.oldest_unknown_seconds,
    }
    for name, seconds in ages.items():
        which = found.oldest_unknown_id if name == "oldest unknown" else None
        at = f" ({ids.public('dlv', which)})" if which else ""
        yield f"{name}: " + ("none" if seconds is None else f"{seconds:.1f} s{at}")
    yield f"oscillating: {found.oscillating}"
    for pause in found.paused:
        yield f"paused: {pause.provider} until {clock(pause.paused_until)} ({pause.kind}, {pause.code})"
