-- What a verification looks like from outside. Each query is one statement, hence one snapshot.

-- name: read_verifications
-- Verifications as their client sees them. client_id null: for operators, whoever's they are. OFFSET: by id, and
-- never by going through all of a client's.
SELECT v.id, v.client_id, a.external_id, v.purpose, v.status, v.email, v.expires_at, v.created_at, v.consumed_at,
       v.superseded_by, v.correlation_id, v.idempotency_key, v.metadata,
       o.id AS delivery_id, o.status AS delivery_status, o.next_attempt_at, o.failure_category, o.failure_code,
       said.kind AS mail_event, said.at AS mail_event_at
FROM (SELECT * FROM verifications WHERE id = ANY(%(ids)s) OFFSET 0) v
JOIN accounts a ON a.id = v.account_id
JOIN email_outbox o ON o.verification_id = v.id
LEFT JOIN LATERAL (
    SELECT e.kind, coalesce(e.occurred_at, e.received_at) AS at FROM provider_events e
    WHERE e.delivery_id = o.id AND e.applied_at IS NOT NULL AND e.kind IN ('delivered', 'bounced', 'complained')
    ORDER BY at DESC, e.id DESC LIMIT 1
) said ON true
WHERE %(client_id)s::uuid IS NULL OR v.client_id = %(client_id)s

-- name: read_receipt
-- The same with everything that happened to its delivery, the providers that are paused now, and those that the newest
-- attempts of all deliveries used: ids are ordered by time, so that is the end of an index.
SELECT v.id, v.client_id, a.external_id, v.purpose, v.status, v.email, v.expires_at, v.created_at, v.consumed_at,
       v.superseded_by, v.correlation_id, v.idempotency_key, v.metadata,
       o.id AS delivery_id, o.status AS delivery_status, o.next_attempt_at, o.failure_category, o.failure_code,
       said.kind AS mail_event, said.at AS mail_event_at,
       o.lease_owner, o.lease_until, o.lease_token, o.attempt_count, o.lost_count, o.replay_count, o.send_before,
       o.gate_reason, o.open_provider, o.last_error, o.provider, o.provider_message_id, o.evidence, o.completed_at,
       o.idempotency_key AS provider_key, o.created_at AS delivery_created_at,
       clock_timestamp() AS now, (SELECT started_at FROM sweep_runs ORDER BY slot DESC LIMIT 1) AS swept_at,
       attempts.list AS attempts, events.list AS events, changes.list AS changes,
       actions.list AS actions, pauses.list AS pauses, providers.list AS providers
FROM verifications v
JOIN accounts a ON a.id = v.account_id
JOIN email_outbox o ON o.verification_id = v.id
LEFT JOIN LATERAL (
    SELECT e.kind, coalesce(e.occurred_at, e.received_at) AS at FROM provider_events e
    WHERE e.delivery_id = o.id AND e.applied_at IS NOT NULL AND e.kind IN ('delivered', 'bounced', 'complained')
    ORDER BY at DESC, e.id DESC LIMIT 1
) said ON true
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY t.lease_token), '[]') AS list
    FROM delivery_attempts t WHERE t.delivery_id = o.id
) attempts
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'provider', e.provider, 'event_id', e.event_id, 'kind', e.kind, 'occurred_at', e.occurred_at,
               'received_at', e.received_at, 'applied_at', e.applied_at) ORDER BY e.received_at, e.id), '[]') AS list
    FROM provider_events e WHERE e.delivery_id = o.id
) events
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(to_jsonb(c) ORDER BY c.id), '[]') AS list
    FROM state_changes c WHERE c.verification_id = v.id
) changes
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(to_jsonb(d) ORDER BY d.id), '[]') AS list
    FROM operator_actions d WHERE d.delivery_id = o.id
) actions
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'provider', p.provider, 'sender', p.sender, 'until', p.paused_until, 'code', p.code, 'kind', p.kind,
               'refused_at', p.refused_at) ORDER BY p.paused_until, p.provider), '[]') AS list
    FROM provider_status p WHERE p.paused_until > clock_timestamp()
) pauses
CROSS JOIN LATERAL (
    SELECT coalesce(jsonb_agg(jsonb_build_object('name', used.provider, 'accepted_at', used.accepted_at)), '[]') AS list
    FROM (
        SELECT newest.provider, max(newest.started_at) FILTER (WHERE newest.outcome = 'accepted') AS accepted_at
        FROM (SELECT t.provider, t.started_at, t.outcome FROM delivery_attempts t
              ORDER BY t.delivery_id DESC, t.lease_token DESC LIMIT 50) newest
        WHERE newest.provider IS NOT NULL GROUP BY newest.provider
    ) used
) providers
WHERE v.id = %(id)s AND (%(client_id)s::uuid IS NULL OR v.client_id = %(client_id)s)

