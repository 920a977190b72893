-- Whether one more mail may be requested now. Mails that certainly never left do not count: their delivery has ended
-- without acceptance, and no hand-over is open. Run after the locks (account, then address), each with its own snapshot.

-- name: lock_address
-- Requests for one mailbox take turns, whatever account they are for. Held until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(%(client_id)s::text || %(email_canonical)s, 1))

-- name: read_recent_of_account
-- An account's mails of so many seconds, newest first, with their age in seconds; `is_alike`: same purpose and mailbox;
-- `is_live`: of this purpose the one whose link works.
SELECT v.id, v.purpose = %(purpose)s AND v.email_canonical = %(email_canonical)s AS is_alike,
       v.purpose = %(purpose)s AND v.status = 'requested' AS is_live,
       extract(epoch FROM clock_timestamp() - v.created_at)::float AS age
FROM verifications v JOIN email_outbox o ON o.verification_id = v.id
WHERE v.account_id = (SELECT id FROM accounts WHERE client_id = %(client_id)s AND external_id = %(external_id)s)
  AND v.created_at > clock_timestamp() - make_interval(secs => %(seconds)s)
  AND (o.status NOT IN ('failed', 'expired', 'cancelled') OR o.open_provider IS NOT NULL)
ORDER BY v.created_at DESC LIMIT greatest(%(account_limit)s, 1000)

-- name: find_last_of_address
-- The oldest of the mails that use up a mailbox' hour, with its age in seconds; no row: it is not used up.
SELECT extract(epoch FROM clock_timestamp() - v.created_at)::float AS age
FROM verifications v JOIN email_outbox o ON o.verification_id = v.id
WHERE v.client_id = %(client_id)s AND v.email_canonical = %(email_canonical)s
  AND v.created_at > clock_timestamp() - interval '1 hour'
  AND (o.status NOT IN ('failed', 'expired', 'cancelled') OR o.open_provider IS NOT NULL)
ORDER BY v.created_at DESC OFFSET %(address_limit)s - 1 LIMIT 1

-- name: count_unfinished
-- How many of a client's deliveries are unfinished, counted as far as it matters; in the order of ix_outbox_unfinished,
-- lest a planner that expects many begins with the finished ones.
SELECT count(*) AS count FROM (
    SELECT FROM email_outbox
    WHERE client_id = %(client_id)s AND status IN ('pending', 'sending', 'unknown')
    ORDER BY status, created_at, verification_id LIMIT %(max_waiting)s
) unfinished
