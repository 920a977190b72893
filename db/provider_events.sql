-- What providers say by themselves. Lock order everywhere: account, verification, outbox, attempt.

-- name: insert_event
-- Each event once. Its delivery is locked; one that was never handed to this provider is recorded and not applied. What it says
-- besides is not kept once the verification is anonymised.
INSERT INTO provider_events (id, provider, event_id, delivery_id, kind, occurred_at, body, applied_at)
SELECT %(id)s, %(provider)s, %(event_id)s, o.id, %(kind)s, %(occurred_at)s,
       CASE WHEN v.anonymised_at IS NULL THEN %(body)s::jsonb END, CASE WHEN %(applies)s THEN clock_timestamp() END
FROM email_outbox o JOIN verifications v ON v.id = o.verification_id
WHERE o.id = %(delivery_id)s
ON CONFLICT (provider, event_id) DO NOTHING
RETURNING id
