-- What should not be. Each answers which of some deliveries are so: of a page of them, and of one again, under its locks.
-- OFFSET: by id, whatever the planner believes of the other conditions.

-- name: read_page
-- The next deliveries, whatever they are: a statement that looked for one among millions would run out of time.
SELECT id FROM email_outbox WHERE id > %(after)s ORDER BY id LIMIT %(limit)s

-- name: find_inactive_accounts
-- A signup was confirmed, and its account is not active.
SELECT o.id FROM verifications v
JOIN accounts a ON a.id = v.account_id
JOIN (SELECT * FROM email_outbox WHERE id = ANY (%(ids)s) OFFSET 0) o ON o.verification_id = v.id
WHERE v.status = 'consumed' AND v.purpose = 'signup' AND a.activated_at IS NULL
ORDER BY o.id

-- name: find_forgotten_hand_overs
-- A provider may have the mail, and the delivery does not know: it could be sent again, elsewhere; and its lease, once it ran
-- out, could not be taken back, nor those of its batch. One that was accepted is the last kind's.
SELECT o.id FROM (SELECT * FROM email_outbox WHERE id = ANY (%(ids)s) OFFSET 0) o
WHERE o.status IN ('pending', 'sending') AND o.open_provider IS NULL
  AND EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = o.id AND a.handed_over_at IS NOT NULL
              AND (a.outcome IS NULL OR a.outcome <> ALL (%(closing)s::text[])))
  AND NOT EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = o.id AND a.outcome = 'accepted')
ORDER BY o.id

-- name: find_open_gates
-- A verification is over, and its delivery could still be handed over.
SELECT o.id FROM (SELECT * FROM email_outbox WHERE id = ANY (%(ids)s) OFFSET 0) o
JOIN verifications v ON v.id = o.verification_id
WHERE o.status IN ('pending', 'sending', 'unknown') AND o.gate_reason IS NULL
  AND v.status IN ('consumed', 'superseded', 'cancelled')
ORDER BY o.id

-- name: find_answered_unknowns
-- An outcome is unknown although every hand-over was answered, and nobody will look for a while.
SELECT o.id FROM (SELECT * FROM email_outbox WHERE id = ANY (%(ids)s) OFFSET 0) o
WHERE o.status = 'unknown' AND o.next_attempt_at > now()
  AND NOT EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = o.id AND a.handed_over_at IS NOT NULL
                  AND (a.outcome IS NULL OR a.outcome <> ALL (%(closing)s::text[])))
ORDER BY o.id

-- name: find_unrecorded_acceptances
-- A provider took the mail, and the delivery does not say so.
SELECT o.id FROM (SELECT * FROM email_outbox WHERE id = ANY (%(ids)s) OFFSET 0) o
WHERE o.status <> 'accepted'
  AND EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = o.id AND a.outcome = 'accepted')
ORDER BY o.id

-- name: activate_account
-- Active as of the confirmation. Its address is what was confirmed last, as far as that is still known.
UPDATE accounts a SET
    activated_at = coalesce(a.activated_at, v.consumed_at),
    email = coalesce((SELECT w.email FROM verifications w
                      WHERE w.account_id = a.id AND w.status = 'consumed' AND w.purpose = ANY (%(setting)s)
                      ORDER BY w.consumed_at DESC LIMIT 1), a.email)
FROM verifications v JOIN email_outbox o ON o.verification_id = v.id
WHERE o.id = %(id)s AND a.id = v.account_id

-- name: read_verification
-- How it ended.
SELECT v.* FROM verifications v JOIN email_outbox o ON o.verification_id = v.id WHERE o.id = %(id)s

-- name: hold_open
-- pending -> unknown, sending stays: evidence or its window's end resolves it. Which bytes were handed over is not known any
-- more, and no mail has this digest: so it is not replayed.
UPDATE email_outbox SET
    status = CASE status WHEN 'pending' THEN 'unknown' ELSE status END,
    next_attempt_at = CASE status WHEN 'pending' THEN clock_timestamp() END,
    open_provider = %(provider)s, payload_digest = ''
WHERE id = %(id)s AND status IN ('pending', 'sending') AND open_provider IS NULL

-- name: make_due
-- The next sweep decides where it goes.
UPDATE email_outbox SET next_attempt_at = clock_timestamp() WHERE id = %(id)s AND status = 'unknown'
