-- The life of a verification. Lock order everywhere: account, verification, outbox.

-- name: ensure_account
-- The account exists afterwards. A concurrent twin is waited for.
INSERT INTO accounts (id, client_id, external_id) VALUES (%(new_account_id)s, %(client_id)s, %(external_id)s)
ON CONFLICT (client_id, external_id) DO NOTHING

-- name: lock_account
-- Everything that happens to an account's verifications waits here. NO KEY UPDATE: foreign keys need not wait.
SELECT id, email, activated_at FROM accounts
WHERE client_id = %(client_id)s AND external_id = %(external_id)s FOR NO KEY UPDATE

-- name: find_by_key
-- What this key made before. Run after the account's lock was granted, in a statement of its own.
SELECT id, token_key_id, fingerprint FROM verifications
WHERE client_id = %(client_id)s AND idempotency_key = %(idempotency_key)s

-- name: lock_requested
-- The one verification of this account and purpose that is still requested.
SELECT v.id, v.expires_at <= clock_timestamp() AS is_overdue
FROM verifications v JOIN accounts a ON a.id = v.account_id
WHERE a.client_id = %(client_id)s AND a.external_id = %(external_id)s
  AND v.purpose = %(purpose)s AND v.status = 'requested'
FOR NO KEY UPDATE OF v

-- name: expire
-- requested -> expired: its time is over. The delivery needs no write, its gate closed earlier.
UPDATE verifications SET status = 'expired' WHERE id = %(id)s AND status = 'requested'

-- name: supersede
-- requested -> superseded: a newer one takes its place in the same transaction (the foreign key is deferred).
UPDATE verifications SET status = 'superseded', superseded_by = %(superseded_by)s
WHERE id = %(id)s AND status = 'requested'

-- name: cancel
-- requested -> cancelled: nobody wants it.
UPDATE verifications SET status = 'cancelled' WHERE id = %(id)s AND status = 'requested'

-- name: insert_verification
-- -> requested.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO verifications
    (id, client_id, account_id, purpose, email, email_canonical, token_key_id, token_nonce, token_hash,
     template_version, locale, return_url, metadata, idempotency_key, fingerprint, correlation_id,
     created_at, expires_at)
SELECT %(id)s, %(client_id)s, %(account_id)s, %(purpose)s, %(email)s, %(email_canonical)s, %(token_key_id)s,
       %(token_nonce)s, %(token_hash)s, %(template_version)s, %(locale)s, %(return_url)s, %(metadata)s,
       %(idempotency_key)s, %(fingerprint)s, %(correlation_id)s,
       clock.now, clock.now + make_interval(secs => %(lifetime)s)
FROM clock
RETURNING id, client_id, purpose, status, email, expires_at, created_at, consumed_at, superseded_by,
          correlation_id, idempotency_key, metadata

-- name: insert_delivery
-- -> pending, due at once: the one delivery of a verification. Its gate closes at the retry deadline, or while the token
-- still has its minimum of life left.
INSERT INTO email_outbox (id, verification_id, next_attempt_at, send_before)
SELECT %(delivery_id)s, v.id, clock_timestamp(),
       least(v.created_at + make_interval(secs => %(delivery_deadline)s),
             v.expires_at - make_interval(secs => %(min_token_life)s))
FROM verifications v WHERE v.id = %(id)s
RETURNING id AS delivery_id, status AS delivery_status, next_attempt_at, failure_category, failure_code

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
RETURNING v.id, v.account_id, v.purpose, v.email, v.consumed_at, v.return_url

-- name: read_by_token
-- What a token stands for now, and whether a newer mail for the same account and purpose can still be used.
SELECT v.id, v.account_id, v.purpose, v.status, v.consumed_at, v.expires_at <= clock_timestamp() AS is_overdue,
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
