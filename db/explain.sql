-- Which verifications a text may mean: an id of somebody's, or a key.

-- name: find_by_text
-- Newest first (ids are in the order of time). Each by an index; idempotency keys are each client's own.
SELECT id FROM (
    SELECT id FROM verifications WHERE correlation_id = %(text)s
    UNION
    SELECT verification_id FROM email_outbox WHERE provider_message_id = %(text)s
    UNION
    SELECT verification_id FROM email_outbox
    WHERE id = ANY (ARRAY(SELECT delivery_id FROM delivery_attempts WHERE provider_message_id = %(text)s))
    UNION
    SELECT k.id FROM clients c
    CROSS JOIN LATERAL (SELECT id FROM verifications WHERE client_id = c.id AND idempotency_key = %(text)s) k
) meant
ORDER BY id DESC LIMIT %(limit)s
