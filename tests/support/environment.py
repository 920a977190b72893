"""The environment of a process under test: fast clocks, loopback, secrets of no worth."""

from __future__ import annotations

import base64
from collections.abc import Mapping

TOKEN_KEYS = "k1:" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
MAIL_FROM = "Countersign <verify@countersign.example>"


def environment(database_url: str, redis_url: str, mail_url: str, **overrides: str) -> Mapping[str, str]:
    """All that the processes need, with time-outs short enough to wait for. Values are strings, seconds mostly."""
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MAIL_URL": mail_url,
        "MAIL_FROM": MAIL_FROM,
        "PUBLIC_URL": "http://127.0.0.1:5000",
        "TOKEN_KEYS": TOKEN_KEYS,
        "SECRET_KEY": "not-a-secret-but-long-enough-for-a-test",
        "ALLOW_RESERVED_DOMAINS": "1",
        "LOG_FORMAT": "json",
        "LEASE_SECONDS": "4",
        "LEASE_MARGIN_SECONDS": "1",
        "SEND_DEADLINE_SECONDS": "2",
        "STATEMENT_TIMEOUT_SECONDS": "1.5",
        "RETRY_BACKOFF_SECONDS": "0.5,1",
        "EVIDENCE_WINDOW_SECONDS": "3",
        "SWEEP_INTERVAL_SECONDS": "1",
        "WORKER_SLOTS": "4",
        # Tests ask for the same mailbox again and again; those of limits set their own.
        "RESEND_COOLDOWN_SECONDS": "0",
        "CREATE_LIMIT": "0",
        **overrides,
    }
