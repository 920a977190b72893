"""`outbox retry|cancel|resolve`: what an operator may do to one delivery, after having been told what is at stake."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import click

from app.cli_support import REFUSED, Command, answer, end, json_option, open_database, say
from db import ids, operations, outbox, stakes
from db.config import retry_terms
from db.operations import Done, Operator, Preview, Weigh
from db.session import Database
from db.stakes import Verdict

F = TypeVar("F", bound=Callable[..., Any])
_LONGEST_NAME, _LONGEST_REASON = 100, 500


def _said(longest: int) -> Callable[[click.Context, click.Parameter, str], str]:
    """A line of text that says something."""

    def check(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
        text = " ".join(value.split())
        if not text or len(text) > longest or not text.isprintable():
            raise click.BadParameter(f"write 1 to {longest} characters")
        return text

    return check


def _operation(command: F) -> F:
    """The arguments that all three have."""
    for decorate in (
        json_option,
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option(
            "--operator",
            envvar=["USER", "LOGNAME"],
            default="unknown",
            callback=_said(_LONGEST_NAME),
            help="Who you are; shown in the receipt.  [default: $USER]",
        ),
        click.option(
            "--reason",
            required=True,
            callback=_said(_LONGEST_REASON),
            help="Why; shown in the receipt, to the client too.",
        ),
        click.argument("public_id", metavar="ID"),
    ):
        command = decorate(command)
    return command


@click.command("retry", cls=Command)
@_operation
def retry(public_id: str, reason: str, operator: str, yes: bool, as_json: bool) -> None:
    """Send once more what has ended or waits (dlv_… or ver_…): same mail, new attempts, due at once."""
    terms = retry_terms()
    database, delivery_id = _find(public_id)
    seen = _confirmed(database, delivery_id, partial(stakes.of_retry, terms=terms), yes=yes)
    done = operations.retry(database, delivery_id, Operator(operator, reason), terms, seen=seen)
    _tell(done, as_json)


@click.command("cancel", cls=Command)
@_operation
def cancel(public_id: str, reason: str, operator: str, yes: bool, as_json: bool) -> None:
    """End a verification and its delivery (dlv_… or ver_…), as its client could."""
    database, delivery_id = _find(public_id)
    seen = _confirmed(database, delivery_id, stakes.of_cancel, yes=yes)
    _tell(operations.cancel(database, delivery_id, Operator(operator, reason), seen=seen), as_json)


@click.command("resolve", cls=Command)
@click.option(
    "--as",
    "verdict",
    type=click.Choice([verdict.value for verdict in Verdict]),
    required=True,
    help="What became of the mail: a provider has it; nobody will know; no provider has it.",
)
@_operation
def resolve(*, public_id: str, verdict: str, reason: str, operator: str, yes: bool, as_json: bool) -> None:
    """Decide an unknown outcome (dlv_… or ver_…)."""
    judged = Verdict(verdict)
    database, delivery_id = _find(public_id)
    seen = _confirmed(database, delivery_id, partial(stakes.of_resolve, verdict=judged), yes=yes)
    done = operations.resolve(database, delivery_id, judged, Operator(operator, reason), seen=seen)
    _tell(done, as_json)


def _find(public_id: str) -> tuple[Database, UUID]:
    if not (ids.parse("ver", public_id) or ids.parse("dlv", public_id)):
        raise click.BadParameter("an id looks like ver_… or dlv_… and 32 hex digits", param_hint="ID")
    database = open_database()
    return database, outbox.find_delivery(database, public_id)


def _confirmed(database: Database, delivery_id: UUID, weigh: Weigh, *, yes: bool) -> Preview:
    """What was shown, and agreed to."""
    seen = operations.preview(database, delivery_id, weigh)
    say(f"{ids.public('dlv', delivery_id)} is {seen.state}. {seen.at_stake}")
    if not yes and not _agrees():
        end("nothing was changed", REFUSED)
    return seen


def _agrees() -> bool:
    try:
        return click.confirm("Go on?", err=True)
    except click.Abort:  # nobody is there to answer
        say("")
        return False


def _tell(done: Done, as_json: bool) -> None:
    data = {
        "delivery_id": ids.public("dlv", done.delivery_id),
        "action": done.action,
        "from_state": done.from_state,
        "to_state": done.to_state,
        "at": done.at,
        "at_stake": done.at_stake,
    }
    answer(data, as_json, [f"{data['delivery_id']}: {done.from_state} -> {done.to_state}"])
