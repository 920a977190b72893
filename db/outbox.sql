-- What operators ask of the outbox as a whole.

-- name: count_by_status
-- How many deliveries are in each state.
SELECT status, count(*) AS count FROM email_outbox GROUP BY status ORDER BY status

-- name: count_oscillating
-- Unfinished deliveries that were leased more often than is usual.
SELECT count(*) AS oscillating FROM email_outbox
WHERE status IN ('pending', 'sending', 'unknown') AND lease_token > %(limit)s

-- name: read_backlog
-- What waits and how long it has waited, each from the end of a partial index. Times in seconds; null: nothing there.
SELECT
    (SELECT extract(epoch FROM clock_timestamp() - next_attempt_at) FROM email_outbox
     WHERE status = 'pending' AND next_attempt_at <= clock_timestamp()
     ORDER BY next_attempt_at, id LIMIT 1)::float AS oldest_due_seconds,
    (SELECT extract(epoch FROM clock_timestamp() - lease_until) FROM email_outbox
     WHERE status = 'sending' AND lease_until <= clock_timestamp()
     ORDER BY lease_until, id LIMIT 1)::float AS oldest_ended_lease_seconds,
    (SELECT extract(epoch FROM clock_timestamp() - created_at) FROM email_outbox
     WHERE status = 'unknown' ORDER BY created_at LIMIT 1)::float AS oldest_unknown_seconds,
    (SELECT id FROM email_outbox WHERE status = 'unknown' ORDER BY created_at LIMIT 1) AS oldest_unknown_id

-- name: list_pauses
-- Providers that take no mail from us now.
SELECT provider, kind, code, paused_until FROM provider_status WHERE paused_until > clock_timestamp()
ORDER BY paused_until

-- name: list_deliveries
-- The newest deliveries, of one state, client, account and time or of all; ids are ordered by time.
SELECT o.id, o.verification_id, o.status, o.attempt_count, o.lease_token, o.next_attempt_at, o.send_before, o.gate_reason,
       o.last_error, o.failure_category, o.failure_code, o.provider, o.created_at, o.completed_at,
       c.name AS client, c.is_test, a.external_id AS account_id, v.email
FROM email_outbox o
JOIN verifications v ON v.id = o.verification_id
JOIN accounts a ON a.id = v.account_id
JOIN clients c ON c.id = v.client_id
WHERE (%(status)s::text IS NULL OR o.status = %(status)s)
  AND (%(client)s::text IS NULL OR c.name = %(client)s)
  AND (%(account)s::text IS NULL OR a.external_id = %(account)s)
  AND (%(since)s::timestamptz IS NULL OR o.created_at >= %(since)s)
  AND (%(more_leases_than)s::bigint IS NULL
       OR (o.lease_token > %(more_leases_than)s AND o.status IN ('pending', 'sending', 'unknown')))
ORDER BY o.id DESC LIMIT %(limit)s

-- name: find_verification
-- The verification and its delivery, behind either id.
SELECT verification_id, id FROM email_outbox WHERE verification_id = %(id)s OR id = %(id)s
