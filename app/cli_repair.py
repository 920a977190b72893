"""`repair`: finds and mends what should not be."""

from __future__ import annotations

import click

from app.cli_support import Command, answer, json_option, open_database, say, table
from db import ids
from db import repair as repairing


@click.command("repair", cls=Command)
@click.option("--dry-run", is_flag=True, help="Count only, and change nothing.")
@json_option
def repair(dry_run: bool, as_json: bool) -> None:
    """Mend accounts, gates and outcomes that contradict each other. Safe to run at any time, and again."""
    found = repairing.run(open_database(), dry_run=dry_run)
    data = {kind: [ids.public("dlv", delivery_id) for delivery_id in each] for kind, each in found.items()}
    rows = [(kind, delivery_id) for kind, each in data.items() for delivery_id in each]
    answer(data, as_json, table(("FOUND" if dry_run else "MENDED", "DELIVERY"), rows))
    if not any(found.values()):
        say("nothing is wrong")
