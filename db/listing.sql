-- Pages of a client's verifications, newest first. Each query walks one index in its order; `matches` says whether a row
-- passes the filters that the index does not know (null: no filter). They are subselects, so that no plan can turn them
-- into a join of whole tables. `after_at` and `after_id` are where the page before ended.

-- name: page_of_client
-- All of them.
SELECT v.id, v.created_at AS at, true AS matches
FROM verifications v
WHERE v.client_id = %(client_id)s AND (v.created_at, v.id) < (%(after_at)s::timestamptz, %(after_id)s)
ORDER BY v.created_at DESC, v.id DESC LIMIT %(most)s

-- name: page_by_verification_status
SELECT v.id, v.created_at AS at,
       coalesce(%(delivery_status)s::text = (SELECT o.status FROM email_outbox o WHERE o.verification_id = v.id), true)
           AS matches
FROM verifications v
WHERE v.client_id = %(client_id)s AND v.status = %(verification_status)s
  AND (v.created_at, v.id) < (%(after_at)s::timestamptz, %(after_id)s)
ORDER BY v.created_at DESC, v.id DESC LIMIT %(most)s

-- name: page_by_delivery_status
-- A delivery is as old as its verification: they are made together.
SELECT o.verification_id AS id, o.created_at AS at,
       coalesce(%(verification_status)s::text = (SELECT v.status FROM verifications v WHERE v.id = o.verification_id), true)
           AS matches
FROM email_outbox o
WHERE o.client_id = %(client_id)s AND o.status = %(delivery_status)s
  AND (o.created_at, o.verification_id) < (%(after_at)s::timestamptz, %(after_id)s)
ORDER BY o.created_at DESC, o.verification_id DESC LIMIT %(most)s

-- name: page_of_account
SELECT v.id, v.created_at AS at,
       coalesce(%(verification_status)s::text = v.status, true)
       AND coalesce(%(delivery_status)s::text = (SELECT o.status FROM email_outbox o WHERE o.verification_id = v.id), true)
           AS matches
FROM verifications v
WHERE v.account_id = (SELECT a.id FROM accounts a
                      WHERE a.client_id = %(client_id)s AND a.external_id = %(account_id)s)
  AND (v.created_at, v.id) < (%(after_at)s::timestamptz, %(after_id)s)
ORDER BY v.created_at DESC, v.id DESC LIMIT %(most)s

-- name: page_consumed
-- The newest confirmation first.
SELECT v.id, v.consumed_at AS at,
       coalesce(%(verification_status)s::text = v.status, true)
       AND coalesce(%(delivery_status)s::text = (SELECT o.status FROM email_outbox o WHERE o.verification_id = v.id), true)
           AS matches
FROM verifications v
WHERE v.client_id = %(client_id)s AND v.consumed_at >= %(consumed_since)s
  AND (v.consumed_at, v.id) < (%(after_at)s::timestamptz, %(after_id)s)
ORDER BY v.consumed_at DESC, v.id DESC LIMIT %(most)s

-- name: page_consumed_of_account
-- The same of one account, which has few: OFFSET keeps the planner from starting at everybody's confirmations.
SELECT v.id, v.consumed_at AS at,
       coalesce(%(verification_status)s::text = v.status, true)
       AND coalesce(%(delivery_status)s::text = (SELECT o.status FROM email_outbox o WHERE o.verification_id = v.id), true)
           AS matches
FROM (SELECT id, status, consumed_at FROM verifications
      WHERE account_id = (SELECT a.id FROM accounts a
                          WHERE a.client_id = %(client_id)s AND a.external_id = %(account_id)s) OFFSET 0) v
WHERE v.consumed_at >= %(consumed_since)s AND (v.consumed_at, v.id) < (%(after_at)s::timestamptz, %(after_id)s)
ORDER BY v.consumed_at DESC, v.id DESC LIMIT %(most)s
