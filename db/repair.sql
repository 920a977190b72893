-- What should not be. Each answers ids of deliveries from a place on; `only` asks again about one, under its locks.

-- name: find_inactive_accounts
-- A signup was confirmed, and its account is not active.
SELECT o.id FROM verifications v
JOIN accounts a ON a.id = v.account_id
JOIN email_outbox o ON o.verification_id = v.id
WHERE v.status = 'consumed' AND v.purpose = 'signup' AND a.activated_at IS NULL
  AND o.id > %(after)s AND (%(only)s::uuid IS NULL OR o.id = %(only)s)
ORDER BY o.id LIMIT %(limit)s

-- name: find_open_gates
-- A verification is over, and its delivery could still be handed over.
SELECT o.id FROM email_outbox o JOIN verifications v ON v.id = o.verification_id
WHERE o.status IN ('pending', 'sending', 'unknown') AND o.gate_reason IS NULL
  AND v.status IN ('consumed', 'superseded', 'cancelled')
  AND o.id > %(after)s AND (%(only)s::uuid IS NULL OR o.id = %(only)s)
ORDER BY o.id LIMIT %(limit)s

-- name: find_answered_unknowns
-- An outcome is unknown although every hand-over was answered, and nobody will look for a while.
SELECT o.id FROM email_outbox o
WHERE o.status = 'unknown' AND o.next_attempt_at > now()
  AND NOT EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = o.id AND a.handed_over_at IS NOT NULL
                  AND (a.outcome IS NULL OR a.outcome <> ALL (%(closing)s::text[])))
  AND o.id > %(after)s AND (%(only)s::uuid IS NULL OR o.id = %(only)s)
ORDER BY o.id LIMIT %(limit)s

-- name: find_unrecorded_acceptances
-- A provider took the mail, and the delivery does not say so.
SELECT o.id FROM email_outbox o
WHERE o.status <> 'accepted'
  AND EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = o.id AND a.outcome = 'accepted')
  AND o.id > %(after)s AND (%(only)s::uuid IS NULL OR o.id = %(only)s)
ORDER BY o.id LIMIT %(limit)s

-- name: read_verification
-- What its confirmation would have done.
SELECT v.* FROM verifications v JOIN email_outbox o ON o.verification_id = v.id WHERE o.id = %(id)s

-- name: make_due
-- The next sweep decides where it goes.
UPDATE email_outbox SET next_attempt_at = clock_timestamp() WHERE id = %(id)s AND status = 'unknown'
