"""Pauses by provider and sender: what a refusal of us starts and a probe that gets through ends (G11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from db.queries import load
from db.session import Tx

_SQL = load("provider_pauses.sql")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider refused us: `kind` is `config` or `away`, `retry_after` its own wish, `backoff` ours. In seconds."""

    kind: str
    code: str
    retry_after: float | None
    backoff: tuple[float, ...]


def pause(tx: Tx, provider: str, sender: str, refusal: Refusal, *, refused_after: datetime) -> None:
    """Pause `provider` for `sender`. `refused_after` is when the refused attempt began: it must be younger than the last
    refusal counted.
    """
    tx.execute(
        _SQL["pause"],
        {
            "provider": provider,
            "sender": sender,
            "kind": refusal.kind,
            "code": refusal.code,
            "retry_after": None if refusal.retry_after is None else min(refusal.retry_after, 86_400.0),
            "backoff": list(refusal.backoff),
            "refused_after": refused_after,
        },
    )


def clear(tx: Tx, provider: str, sender: str) -> None:
    """End a pause that no operator made."""
    tx.execute(_SQL["clear"], {"provider": provider, "sender": sender})


def all_paused(tx: Tx, providers: Sequence[str], sender: str) -> bool:
    """Whether no configured provider takes mail now."""
    row = tx.execute(_SQL["all_paused"], {"providers": list(providers), "sender": sender}).fetchone()
    return bool(row and row["paused"])
