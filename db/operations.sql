-- What operators do to deliveries. Lock order everywhere: account, verification, outbox, attempt.

-- name: find_verification
-- Whose delivery it is, without a lock.
SELECT verification_id AS id FROM email_outbox WHERE id = %(id)s

-- name: lock_account_of_delivery
-- The account first: create, consume and cancel begin with it.
SELECT a.id FROM accounts a
WHERE a.id = (SELECT v.account_id FROM email_outbox o JOIN verifications v ON v.id = o.verification_id WHERE o.id = %(id)s)
FOR NO KEY UPDATE

-- name: lock_verification_of_delivery
-- Then the verification: the sweep may be about to end it.
SELECT v.id FROM verifications v
WHERE v.id = (SELECT o.verification_id FROM email_outbox o WHERE o.id = %(id)s) FOR NO KEY UPDATE

-- name: reopen
-- pending|failed|expired|cancelled -> pending: as new, but for the fence, which only grows. No hand-over is open.
UPDATE email_outbox SET
    status = 'pending', next_attempt_at = clock_timestamp(), send_before = %(send_before)s, gate_reason = NULL,
    open_provider = NULL, payload_digest = NULL, attempt_count = 0, lost_count = 0, replay_count = 0,
    failure_category = NULL, failure_code = NULL, completed_at = NULL, last_error = %(last_error)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: close_attempts
-- Open hand-overs of which an operator knows that they came to nothing.
UPDATE delivery_attempts SET outcome = 'not_sent', error_code = %(error_code)s, finished_at = clock_timestamp()
WHERE delivery_id = %(id)s AND handed_over_at IS NOT NULL AND (outcome IS NULL OR outcome IN ('unknown', 'lost'))

-- name: insert_action
-- Who did what and why, and what they were told before.
INSERT INTO operator_actions (id, delivery_id, action, operator, reason, at_stake, from_state, to_state, at)
VALUES (%(action_id)s, %(delivery_id)s, %(action)s, %(operator)s, %(reason)s, %(at_stake)s, %(from_state)s, %(to_state)s,
        %(at)s)
