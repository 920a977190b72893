-- What test clients may know, because their mail goes to nobody.

-- name: read_secrets
-- What a verification's token is made from, and whether any mail with it was handed over; if not, in how many seconds one
-- may be (null: never). Of test clients only.
SELECT v.id, v.email, v.token_key_id, v.token_nonce,
       EXISTS (SELECT FROM email_outbox o JOIN delivery_attempts a ON a.delivery_id = o.id
               WHERE o.verification_id = v.id AND a.handed_over_at IS NOT NULL) AS was_handed_over,
       CASE WHEN o.status IN ('pending', 'sending', 'unknown')
            THEN greatest(1, ceil(extract(epoch FROM o.next_attempt_at - clock_timestamp())))::int END AS retry_after
FROM verifications v JOIN clients c ON c.id = v.client_id JOIN email_outbox o ON o.verification_id = v.id
WHERE v.id = %(id)s AND v.client_id = %(client_id)s AND c.is_test
