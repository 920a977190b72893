-- What providers say by themselves. Lock order everywhere: account, verification, outbox, attempt.

-- name: insert_event
-- Each event once. Its delivery is locked; one that was never handed to this provider is recorded and not applied.
INSERT INTO provider_events (id, provider, event_id, delivery_id, kind, occurred_at, body, applied_at)
VALUES (%(id)s, %(provider)s, %(event_id)s, %(delivery_id)s, %(kind)s, %(occurred_at)s, %(body)s,
        CASE WHEN %(applies)s THEN clock_timestamp() END)
ON CONFLICT (provider, event_id) DO NOTHING
RETURNING id
