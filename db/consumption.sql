-- Using a token. Lock order everywhere: account, verification, outbox.

-- name: lock_account_of_token
-- The account first, whatever is done with its token.
SELECT id FROM accounts
WHERE id = (SELECT account_id FROM verifications WHERE token_hash = %(token_hash)s) FOR NO KEY UPDATE

-- name: consume
-- requested -> consumed. The lock comes first: a plain UPDATE that waited for it would pass an expiry that came meanwhile.
WITH held AS MATERIALIZED (
    SELECT id, status, expires_at FROM verifications WHERE token_hash = %(token_hash)s FOR NO KEY UPDATE
)
UPDATE verifications v SET status = 'consumed', consumed_at = clock_timestamp()
FROM held
WHERE v.id = held.id AND held.status = 'requested' AND held.expires_at > clock_timestamp()
RETURNING v.id, v.account_id, v.purpose, v.email, v.consumed_at, v.return_url, v.locale

-- name: read_by_token
-- What a token stands for now, and whether a newer mail for the same account and purpose can still be used.
SELECT v.id, v.status, v.consumed_at, v.return_url, v.locale, v.expires_at <= clock_timestamp() AS is_overdue,
       EXISTS (
           SELECT FROM verifications newer
           WHERE newer.account_id = v.account_id AND newer.purpose = v.purpose AND newer.id <> v.id
             AND newer.status = 'requested' AND newer.expires_at > clock_timestamp()
       ) AS newer_exists
FROM verifications v WHERE v.token_hash = %(token_hash)s

-- name: confirm_account
-- The account takes the confirmed address and becomes active, as far as the purpose says so.
UPDATE accounts SET
    email = CASE WHEN %(sets_address)s THEN %(email)s ELSE email END,
    activated_at = CASE WHEN %(activates)s THEN coalesce(activated_at, %(at)s) ELSE activated_at END
WHERE id = %(account_id)s
