-- What is forgotten once it is over for long enough. Lock order: verification, outbox; what others hold is the next sweep's.

-- name: find_finished
-- A batch of dead verifications that were requested before the retention began, oldest first from a place on. `is_over`: the
-- delivery has ended too, and nothing about either has changed since.
WITH candidates AS MATERIALIZED (
    SELECT id FROM verifications
    WHERE anonymised_at IS NULL AND status <> 'requested'
      AND created_at < now() - make_interval(secs => %(retention)s)
      AND (created_at, id) > (%(after_at)s, %(after_id)s)
    ORDER BY created_at, id LIMIT %(limit)s
)
SELECT v.id, v.created_at,
       o.status IN ('accepted', 'failed', 'expired', 'cancelled')
       AND NOT EXISTS (
           SELECT FROM state_changes c
           WHERE c.verification_id = v.id AND c.at >= now() - make_interval(secs => %(retention)s)) AS is_over
FROM verifications v JOIN email_outbox o ON o.verification_id = v.id
WHERE v.id = ANY (ARRAY(SELECT id FROM candidates))
ORDER BY v.created_at, v.id

-- name: anonymise_verifications
-- Address, token, metadata and return address go; key, keyed fingerprint and status stay, so that a repeat is still answered.
-- The delivery is held as well: an event that comes now waits, and finds that it has to be kept without its body.
WITH held AS MATERIALIZED (
    SELECT v.id FROM verifications v JOIN email_outbox o ON o.verification_id = v.id
    WHERE v.id = ANY (%(ids)s) AND v.anonymised_at IS NULL AND v.status <> 'requested'
      AND o.status IN ('accepted', 'failed', 'expired', 'cancelled')
    ORDER BY v.id FOR UPDATE OF v, o SKIP LOCKED
)
UPDATE verifications v SET
    email = NULL, email_canonical = NULL, token_hash = NULL, metadata = NULL, return_url = NULL,
    anonymised_at = clock_timestamp()
FROM held WHERE v.id = held.id
RETURNING v.id

-- name: forget_events
-- What providers wrote besides; that they said so stays.
UPDATE provider_events e SET body = NULL
FROM email_outbox o
WHERE o.verification_id = ANY (%(ids)s) AND e.delivery_id = o.id AND e.body IS NOT NULL

-- name: forget_operators
-- Who it was and in which words; what they did stays.
UPDATE operator_actions a SET operator = NULL, reason = NULL, at_stake = NULL
FROM email_outbox o
WHERE o.verification_id = ANY (%(ids)s) AND a.delivery_id = o.id AND a.operator IS NOT NULL

-- name: delete_suppressions
-- Those that ran out so long ago, a batch.
DELETE FROM suppressions WHERE id IN (
    SELECT id FROM suppressions WHERE expires_at < now() - make_interval(secs => %(retention)s)
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id
