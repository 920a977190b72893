"""What a run says at its end: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.run import Outcome


def summary(outcome: Outcome) -> dict[str, Any]:
    """Everything that is worth keeping, ready for JSON."""
    facts = outcome.facts
    kept = Counter(mail.delivery_id for mail in facts.mails if mail.kept)
    calls = Counter(f"{call.what} {call.status or call.code}" for call in facts.book.calls)
    return {
        "seed": outcome.seed,
        "minutes": outcome.minutes,
        "seconds": round(outcome.seconds, 1),
        "settled_after_seconds": round(outcome.settled_after, 1),
        "faults": len(outcome.injected),
        "created": len(facts.verifications),
        "deliveries": dict(Counter(row["status"] for row in facts.deliveries)),
        "evidence": dict(Counter(row["evidence"] for row in facts.deliveries if row["evidence"])),
        "failures": dict(Counter(row["failure_code"] for row in facts.deliveries if row["failure_code"])),
        "attempts": dict(Counter(str(row["outcome"]) for row in facts.attempts)),
        "stale_results": sum(row["stale"] for row in facts.attempts),
        "replays": sum(row["replay_count"] for row in facts.deliveries),
        "mails": sum(kept.values()),
        "mails_per_delivery": dict(sorted(Counter(kept.values()).items())),
        "duplicates": sum(count - 1 for count in kept.values()),
        "calls": dict(sorted(calls.items())),
        "feed": len(facts.book.feed),
        "recovery": [_recovery(each) for each in outcome.recoveries],
        "breaches": [str(breach) for breach in outcome.breaches],
    }


def _recovery(each: Any) -> dict[str, Any]:
    values = {name: getattr(each, name) for name in ("create", "worst_create", "mail", "worst_mail")}
    rounded = {name: None if value is None else round(value, 2) for name, value in values.items()}
    return {"kind": each.kind, "times": each.times, "failed_calls": each.failed, **rounded}


def write(outcome: Outcome, path: Path) -> None:
    """The summary as JSON."""
    path.write_text(json.dumps(summary(outcome), indent=1) + "\n", encoding="utf-8")


def lines(outcome: Outcome) -> Iterator[str]:
    """The summary for people."""
    said = summary(outcome)
    yield f"seed {said['seed']}, {said['minutes']:g} minutes: {said['faults']} faults in {said['seconds']:.0f} s"
    yield f"  created    {said['created']}, settled {said['settled_after_seconds']:.1f} s after the end"
    yield f"  deliveries {_counts(said['deliveries'])}"
    yield f"  attempts   {_counts(said['attempts'])}; {said['stale_results']} late, {said['replays']} replays"
    yield f"  failures   {_counts(said['failures']) or 'none'}"
    each = _counts(said["mails_per_delivery"])
    yield f"  mails      {said['mails']} kept, {said['duplicates']} duplicates; a delivery: {each}"
    yield f"  answers    {_counts(said['calls'])}"
    yield ""
    head = "".join(f"{word:>8}" for word in ("times", "failed", "create", "worst", "mail", "worst"))
    yield f"  {'fault':<24}{head}   calls that failed meanwhile; seconds to the first success after it"
    for each in said["recovery"]:
        cells = (each["create"], each["worst_create"], each["mail"], each["worst_mail"])
        shown = "".join(f"{'-' if cell is None else f'{cell:.2f}':>8}" for cell in cells)
        yield f"  {each['kind']:<24}{each['times']:>8}{each['failed_calls']:>8}{shown}"
    yield ""
    yield f"  {len(outcome.breaches)} broken promises" if outcome.breaches else "  every promise kept"
    yield from (f"  {breach}" for breach in outcome.breaches)


def _counts(counted: dict[Any, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.items())
