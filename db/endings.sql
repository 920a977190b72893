-- How a requested verification ends without being used. Lock order everywhere: account, verification, outbox.

-- name: expire
-- requested -> expired: its time is over. The delivery needs no write, its gate closed earlier.
UPDATE verifications SET status = 'expired' WHERE id = %(id)s AND status = 'requested'

-- name: supersede
-- requested -> superseded: a newer one takes its place in the same transaction (the foreign key is deferred).
UPDATE verifications SET status = 'superseded', superseded_by = %(superseded_by)s
WHERE id = %(id)s AND status = 'requested'

-- name: cancel
-- requested -> cancelled: nobody wants it.
UPDATE verifications SET status = 'cancelled', cancelled_by = %(cancelled_by)s
WHERE id = %(id)s AND status = 'requested'

-- name: lock_account_of_verification
-- The account first, whatever is done with its verification.
SELECT a.id FROM accounts a
WHERE a.id = (SELECT v.account_id FROM verifications v
              WHERE v.id = %(id)s AND (%(client_id)s::uuid IS NULL OR v.client_id = %(client_id)s))
FOR NO KEY UPDATE

-- name: read_status
-- Whether it can still be cancelled; read in a statement of its own, after the account's lock was granted.
SELECT status, expires_at <= clock_timestamp() AS is_overdue FROM verifications
WHERE id = %(id)s AND (%(client_id)s::uuid IS NULL OR client_id = %(client_id)s)
