"""Many verifications at once, in every state, with equal instants among them: for tests of lists, feeds and plans."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from db.delivery_state import State
from db.phases import Status
from db.session import Database

# Each number is a verification, in a purpose of its own, so that an account may have many that are requested. Three
# share an instant. The statuses go round the two lists.
FILL = """
WITH numbers AS (
    SELECT n, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
           '2026-01-01T00:00:00Z'::timestamptz + make_interval(secs => n / 3) AS at,
           (%(statuses)s::text[])[1 + n %% cardinality(%(statuses)s::text[])] AS status,
           (%(states)s::text[])[1 + (n / cardinality(%(statuses)s::text[])) %% cardinality(%(states)s::text[])] AS state
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) n
),
a AS (
    INSERT INTO accounts (id, client_id, external_id)
    SELECT gen_random_uuid(), %(client)s, 'account-' || number
    FROM (SELECT DISTINCT n %% %(accounts)s AS number FROM numbers) each ORDER BY number
    ON CONFLICT (client_id, external_id) DO UPDATE SET external_id = excluded.external_id
    RETURNING id, external_id
),
v AS (
    INSERT INTO verifications (id, client_id, account_id, purpose, status, email, email_canonical, token_key_id,
        token_nonce, token_hash, template_version, idempotency_key, fingerprint, correlation_id, created_at, expires_at,
        consumed_at, superseded_by, cancelled_by)
    SELECT n.id, %(client)s, a.id, 'p' || n, status, 'p@example.com', 'p@example.com', 'k1', '', uuid_send(n.id), 1, n.id, '',
        'r', at, at + interval '1 day',
        CASE WHEN status = 'consumed' THEN at + make_interval(mins => (n * 7919 %% 600)::int) END,
        CASE WHEN status = 'superseded' THEN n.id END, CASE WHEN status = 'cancelled' THEN 'client' END
    FROM numbers n JOIN a ON a.external_id = 'account-' || (n.n %% %(accounts)s)
    RETURNING id
)
INSERT INTO email_outbox (id, verification_id, client_id, status, created_at, send_before, lease_owner, lease_until,
    next_attempt_at, open_provider, payload_digest, completed_at, evidence, failure_category, failure_code)
SELECT n.id, n.id, %(client)s, state, at, at + interval '4 hours',
    CASE WHEN state = 'sending' THEN 'host:1:0' END, CASE WHEN state = 'sending' THEN at END,
    CASE WHEN state IN ('pending', 'unknown') THEN at END,
    CASE WHEN state = 'unknown' THEN 'smtp/one.example.com' END, CASE WHEN state = 'unknown' THEN '\\x01'::bytea END,
    CASE WHEN state IN ('accepted', 'failed', 'expired', 'cancelled') THEN at END,
    CASE WHEN state = 'accepted' THEN 'response' END,
    CASE WHEN state = 'failed' THEN 'recipient' END, CASE WHEN state = 'failed' THEN 'mailbox_unavailable' END
FROM numbers n
"""


def fill(
    database: Database,
    client_id: UUID,
    first: int,
    count: int,
    *,
    accounts: int = 7,
    statuses: Sequence[Status] = tuple(Status),
    states: Sequence[State] = tuple(State),
) -> None:
    """Verifications `first` … `first + count - 1` of the client, the higher the newer, shared among `accounts`."""
    with database.transaction() as tx:
        tx.execute(
            FILL,
            {
                "first": first,
                "last": first + count - 1,
                "client": client_id,
                "accounts": accounts,
                "statuses": [str(status) for status in statuses],
                "states": [str(state) for state in states],
            },
        )
