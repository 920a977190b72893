-- Requesting a verification. Lock order everywhere: account, verification, outbox.

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
-- The one verification of this account and purpose that is still requested. A sub-select and no join: a planner with old
-- statistics would begin with every verification that is requested.
SELECT id, expires_at <= clock_timestamp() AS is_overdue FROM verifications
WHERE account_id = (SELECT id FROM accounts WHERE client_id = %(client_id)s AND external_id = %(external_id)s)
  AND purpose = %(purpose)s AND status = 'requested'
FOR NO KEY UPDATE

-- name: insert_verification
-- -> requested, in the words that its client has chosen by now.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO verifications
    (id, client_id, account_id, purpose, email, email_canonical, token_key_id, token_nonce, token_hash,
     template_version, branding_id, locale, return_url, metadata, idempotency_key, fingerprint, correlation_id,
     created_at, expires_at)
SELECT %(id)s, %(client_id)s, %(account_id)s, %(purpose)s, %(email)s, %(email_canonical)s, %(token_key_id)s,
       %(token_nonce)s, %(token_hash)s, %(template_version)s, c.branding_id, %(locale)s, %(return_url)s, %(metadata)s,
       %(idempotency_key)s, %(fingerprint)s, %(correlation_id)s,
       clock.now, clock.now + make_interval(secs => %(lifetime)s)
FROM clock, clients c WHERE c.id = %(client_id)s
RETURNING id, client_id, purpose, status, email, expires_at, created_at, consumed_at, superseded_by,
          correlation_id, idempotency_key, metadata

-- name: insert_delivery
-- -> pending, due at once: the one delivery of a verification. Its gate closes at the retry deadline, or while the token
-- still has its minimum of life left.
INSERT INTO email_outbox (id, verification_id, client_id, route, created_at, next_attempt_at, send_before)
SELECT %(delivery_id)s, v.id, v.client_id, CASE WHEN c.is_test THEN 'test' ELSE 'live' END, v.created_at, clock_timestamp(),
       least(v.created_at + make_interval(secs => %(delivery_deadline)s),
             v.expires_at - make_interval(secs => %(min_token_life)s))
FROM verifications v JOIN clients c ON c.id = v.client_id WHERE v.id = %(id)s
RETURNING id AS delivery_id, status AS delivery_status, next_attempt_at, failure_category, failure_code
