-- The lease protocol (docs/architecture.md, "Lease protocol"). Each query stands beside the states it leads between.
-- Lock order everywhere: account, verification, outbox, attempt, provider_status.

-- name: claim
-- pending -> sending (or failed, when the address is suppressed); unknown -> sending for a look-up or a replay, or put off.
-- Scans start at the claimer's position, so that dead row versions behind it cost nothing. now() and not
-- clock_timestamp(), which no index can serve; the lease is a little shorter for it.
WITH configured AS MATERIALIZED (
    SELECT c.name, c.can_look_up, c.replay_window, c.rank, s.paused_until
    FROM unnest(%(providers)s::text[], %(can_look_up)s::boolean[], %(replay_windows)s::float[])
         WITH ORDINALITY AS c (name, can_look_up, replay_window, rank)
    LEFT JOIN provider_status s ON s.provider = c.name AND s.sender = %(sender)s
), chosen AS MATERIALIZED (
    SELECT name, paused_until IS NOT NULL AS is_probe
    FROM configured WHERE paused_until IS NULL OR paused_until <= now()
    ORDER BY rank LIMIT 1
), unknown AS MATERIALIZED (
    SELECT o.id, o.next_attempt_at, o.open_provider AS provider, plan.action,
           least(hand_over.window_end, (SELECT p.paused_until FROM configured p
                                        WHERE p.name = o.open_provider AND p.paused_until > now())) AS window_end
    FROM email_outbox o
    LEFT JOIN configured c ON c.name = o.open_provider AND (c.paused_until IS NULL OR c.paused_until <= now())
    CROSS JOIN LATERAL (
        SELECT min(a.handed_over_at) AS first_at,
               max(a.handed_over_at) + make_interval(secs => %(evidence_window)s) AS window_end
        FROM delivery_attempts a
        WHERE a.delivery_id = o.id AND a.handed_over_at IS NOT NULL
          AND (a.outcome IS NULL OR a.outcome <> ALL (%(closing)s::text[]))
    ) hand_over
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN c.can_look_up AND now() < hand_over.window_end THEN 'look_up'
            WHEN o.send_before > now()
             AND CASE WHEN c.replay_window > 0
                      THEN o.replay_count < %(unknown_budget)s
                       AND now() < hand_over.first_at + make_interval(secs => c.replay_window)
                      ELSE c.name IS NOT NULL AND o.replay_count < 1 AND now() >= hand_over.window_end END
             AND NOT EXISTS (
                SELECT FROM verifications v JOIN suppressions s USING (client_id, email_canonical)
                WHERE v.id = o.verification_id AND (s.expires_at IS NULL OR s.expires_at > now()))
            THEN 'replay'
            WHEN now() < hand_over.window_end THEN 'put_off'
        END AS action
    ) plan
    WHERE o.id = ANY (ARRAY(
            -- bounded: what no claim can take waits here until the sweep has moved it
            SELECT id FROM email_outbox
            WHERE route = %(route)s AND status = 'unknown' AND next_attempt_at <= now()
              AND (next_attempt_at, id) >= (%(unknown_from_at)s, %(unknown_from_id)s)
            ORDER BY next_attempt_at, id LIMIT 100))
      AND o.status = 'unknown' AND o.next_attempt_at <= now() AND plan.action IS NOT NULL
    ORDER BY o.next_attempt_at, o.id
    LIMIT %(limit)s
    FOR UPDATE OF o SKIP LOCKED
), pending AS MATERIALIZED (
    SELECT o.id, o.next_attempt_at, o.verification_id
    FROM email_outbox o
    WHERE o.route = %(route)s AND o.status = 'pending' AND o.next_attempt_at <= now() AND o.send_before > now()
      AND (o.next_attempt_at, o.id) >= (%(pending_from_at)s, %(pending_from_id)s)
      AND EXISTS (SELECT FROM chosen)
      AND NOT EXISTS (SELECT FROM unknown WHERE action <> 'put_off')
    ORDER BY o.next_attempt_at, o.id
    LIMIT %(limit)s
    FOR UPDATE OF o SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT id, next_attempt_at, provider, action, window_end FROM unknown
    UNION ALL
    (SELECT p.id, p.next_attempt_at, chosen.name,
            CASE WHEN EXISTS (
                SELECT FROM verifications v JOIN suppressions s USING (client_id, email_canonical)
                WHERE v.id = p.verification_id AND (s.expires_at IS NULL OR s.expires_at > now()))
            THEN 'suppress' ELSE 'send' END,
            NULL
     FROM pending p, chosen
     ORDER BY p.next_attempt_at, p.id
     LIMIT (SELECT CASE WHEN is_probe THEN 1 END FROM chosen))
), probe AS MATERIALIZED (
    -- a provider whose pause ended is tried by one delivery; a second claimer waits here and finds the pause moved on
    UPDATE provider_status s SET paused_until = now() + make_interval(secs => %(lease_seconds)s)
    FROM (SELECT DISTINCT provider FROM picked WHERE action IN ('send', 'replay', 'look_up')) p
    WHERE s.provider = p.provider AND s.sender = %(sender)s AND s.paused_until <= now()
    RETURNING s.provider
), moved AS (
    UPDATE email_outbox o SET
        status = CASE p.action WHEN 'suppress' THEN 'failed' WHEN 'put_off' THEN 'unknown' ELSE 'sending' END,
        lease_owner = CASE WHEN p.action IN ('send', 'replay', 'look_up') THEN %(owner)s END,
        lease_until = CASE WHEN p.action IN ('send', 'replay', 'look_up')
                           THEN now() + make_interval(secs => %(lease_seconds)s) END,
        lease_token = o.lease_token + (p.action IN ('send', 'replay', 'look_up'))::int,
        next_attempt_at = CASE WHEN p.action = 'put_off' THEN p.window_end END,
        failure_category = CASE WHEN p.action = 'suppress' THEN 'recipient' END,
        failure_code = CASE WHEN p.action = 'suppress' THEN 'suppressed' END,
        completed_at = CASE WHEN p.action = 'suppress' THEN clock_timestamp() END
    FROM picked p
    LEFT JOIN configured c ON c.name = p.provider
    LEFT JOIN probe ON probe.provider = p.provider
    -- the array bounds what the planner expects, whatever it believes about LIMIT
    WHERE o.id = ANY (ARRAY(SELECT id FROM picked)) AND o.id = p.id
      AND (p.action IN ('suppress', 'put_off') OR c.paused_until IS NULL OR probe.provider IS NOT NULL)
    RETURNING o.id, o.verification_id, o.route, o.lease_owner, o.lease_token, o.attempt_count, o.payload_digest,
              p.action, p.provider, p.next_attempt_at AS due_at, probe.provider IS NOT NULL AS is_probe
)
SELECT m.*, now() AS claimed_at, v.client_id, v.email AS recipient, v.purpose, v.locale, v.template_version, v.branding_id,
       v.token_key_id, v.token_nonce, v.created_at, v.expires_at, v.correlation_id
FROM moved m JOIN verifications v ON v.id = m.verification_id
ORDER BY m.due_at, m.id

-- name: has_due_work
-- Whether a claim by these providers would find a pending delivery now, from the claimer's position on. The order makes the
-- planner use the index: where it believes that a route has many such rows, it would read the table until it meets one.
SELECT EXISTS (
    SELECT FROM (
        SELECT FROM email_outbox o
        WHERE o.route = %(route)s AND o.status = 'pending' AND o.next_attempt_at <= now() AND o.send_before > now()
          AND (o.next_attempt_at, o.id) >= (%(pending_from_at)s, %(pending_from_id)s)
        ORDER BY o.next_attempt_at, o.id LIMIT 1
    ) pending
) AND EXISTS (
    SELECT FROM unnest(%(providers)s::text[]) AS c (name)
    LEFT JOIN provider_status s ON s.provider = c.name AND s.sender = %(sender)s
    WHERE s.paused_until IS NULL OR s.paused_until <= now()
) OR EXISTS (
    SELECT FROM (
        SELECT FROM email_outbox o
        WHERE o.route = %(route)s AND o.status = 'unknown' AND o.next_attempt_at <= now()
          AND (o.next_attempt_at, o.id) >= (%(unknown_from_at)s, %(unknown_from_id)s)
        ORDER BY o.next_attempt_at, o.id LIMIT 1
    ) unknown
) AS due

-- name: hand_over
-- sending -> sending: the last instant at which the provider certainly has nothing. The lock comes first: a plain
-- UPDATE that waited for it would pass a lease that ended meanwhile. No row: send nothing.
WITH held AS MATERIALIZED (
    SELECT id, lease_until, send_before FROM email_outbox
    WHERE id = %(id)s AND lease_owner = %(owner)s AND lease_token = %(lease_token)s AND status = 'sending'
    FOR UPDATE
), stamped AS (
    UPDATE email_outbox o SET
        lease_until = clock_timestamp() + make_interval(secs => %(lease_seconds)s),
        replay_count = o.replay_count + (o.open_provider IS NOT NULL)::int,
        open_provider = %(provider)s,
        payload_digest = %(digest)s,
        provider = %(provider)s,
        idempotency_key = %(idempotency_key)s
    FROM held
    WHERE o.id = held.id AND clock_timestamp() < least(held.lease_until, held.send_before)
      AND (o.open_provider IS NULL OR (o.open_provider = %(provider)s AND o.payload_digest = %(digest)s))
    RETURNING o.id
)
INSERT INTO delivery_attempts
    (delivery_id, lease_token, worker, provider, started_at, handed_over_at, correlation_id, release)
SELECT id, %(lease_token)s, %(owner)s, %(provider)s, %(claimed_at)s, clock_timestamp(), %(correlation_id)s, %(release)s
FROM stamped
RETURNING handed_over_at

-- name: lock_deliveries
-- Locks rows in a stable order; what they mean is read afterwards (read_attempts, read_clock).
SELECT * FROM email_outbox WHERE id = ANY (%(ids)s) ORDER BY id FOR UPDATE

-- name: lock_delivery_of_verification
-- The same for the one delivery of a verification, whose lock the caller holds.
SELECT * FROM email_outbox WHERE verification_id = %(verification_id)s FOR UPDATE

-- name: lock_lost_leases
-- A batch of leases that ran out, oldest first, past those that another sweep holds.
SELECT * FROM email_outbox WHERE status = 'sending' AND lease_until <= now()
ORDER BY lease_until, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: lock_overdue_pending
-- A batch of waiting deliveries whose gate closed by the clock.
SELECT *, EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = email_outbox.id AND a.outcome = 'refused_us'
               AND a.lease_token = (SELECT max(lease_token) FROM delivery_attempts WHERE delivery_id = email_outbox.id)
       ) AS was_refused
FROM email_outbox WHERE status = 'pending' AND send_before <= now()
ORDER BY send_before, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: lock_overdue_unknown
-- A batch of due unknown deliveries of a route, from a keyset position on; most are the next claim's, the rest end here.
SELECT o.*, EXISTS (SELECT FROM verifications v JOIN suppressions s USING (client_id, email_canonical)
                    WHERE v.id = o.verification_id AND (s.expires_at IS NULL OR s.expires_at > now())) AS is_suppressed
FROM email_outbox o
WHERE o.route = %(route)s AND o.status = 'unknown' AND o.next_attempt_at <= now()
  AND (o.next_attempt_at, o.id) > (%(after_at)s, %(after_id)s)
ORDER BY o.next_attempt_at, o.id LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED

-- name: lock_unknown_answered_late
-- A batch of unknown deliveries whose last open attempt was closed by a result that came too late to move the row. It came
-- within the hour: what no sweep has seen by then is returned when it is due.
SELECT o.* FROM email_outbox o
WHERE o.id = ANY (ARRAY(
        SELECT delivery_id FROM delivery_attempts WHERE stale AND finished_at > now() - interval '1 hour'))
  AND o.status = 'unknown'
  AND NOT EXISTS (SELECT FROM delivery_attempts a
                  WHERE a.delivery_id = o.id AND a.handed_over_at IS NOT NULL
                    AND (a.outcome IS NULL OR a.outcome <> ALL (%(closing)s::text[])))
ORDER BY o.id LIMIT %(limit)s FOR UPDATE OF o SKIP LOCKED

-- name: read_attempts
-- The attempts of locked deliveries, read in a statement of its own: its snapshot is younger than the locks.
SELECT delivery_id, lease_token, provider, handed_over_at, outcome
FROM delivery_attempts WHERE delivery_id = ANY (%(ids)s) ORDER BY delivery_id, lease_token

-- name: read_clock
-- The present, after the locks.
SELECT clock_timestamp() AS now

-- name: record_loss
-- What a reclaim says of the leases it took back; a result that arrives later overwrites it.
INSERT INTO delivery_attempts AS a
    (delivery_id, lease_token, worker, started_at, finished_at, outcome, correlation_id)
SELECT o.id, o.lease_token, o.lease_owner, o.lease_until - make_interval(secs => %(lease_seconds)s), clock_timestamp(),
       'lost', v.correlation_id
FROM email_outbox o JOIN verifications v ON v.id = o.verification_id WHERE o.id = %(id)s
ON CONFLICT (delivery_id, lease_token) DO UPDATE SET finished_at = excluded.finished_at, outcome = 'lost'
WHERE a.outcome IS NULL

-- name: insert_attempt
-- The one row of a lease that reached no hand-over.
INSERT INTO delivery_attempts
    (delivery_id, lease_token, worker, provider, started_at, finished_at, outcome, stale, response_status, error_code,
     provider_message_id, correlation_id, release)
VALUES (%(id)s, %(lease_token)s, %(owner)s, %(provider)s, %(claimed_at)s, clock_timestamp(), %(outcome)s, %(stale)s,
        %(response_status)s, %(error_code)s, %(provider_message_id)s, %(correlation_id)s, %(release)s)

-- name: complete_attempt
-- The same for one that hand_over or a reclaim wrote. A final outcome is never overwritten.
UPDATE delivery_attempts SET
    finished_at = clock_timestamp(), outcome = %(outcome)s, stale = %(stale)s, provider = %(provider)s,
    response_status = %(response_status)s, error_code = %(error_code)s, provider_message_id = %(provider_message_id)s
WHERE delivery_id = %(id)s AND lease_token = %(lease_token)s AND (outcome IS NULL OR outcome IN ('unknown', 'lost'))

-- name: to_pending
-- sending|unknown -> pending: no hand-over is open; a later one may use other bytes and another provider.
UPDATE email_outbox SET
    status = 'pending', lease_owner = NULL, lease_until = NULL, next_attempt_at = %(next_attempt_at)s,
    open_provider = NULL, payload_digest = NULL, last_error = coalesce(%(last_error)s, last_error),
    attempt_count = attempt_count + %(attempts)s, lost_count = lost_count + %(losses)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: to_unknown
-- sending|unknown -> unknown: a hand-over stays open, and with it provider and bytes.
UPDATE email_outbox SET
    status = 'unknown', lease_owner = NULL, lease_until = NULL, next_attempt_at = %(next_attempt_at)s,
    last_error = coalesce(%(last_error)s, last_error),
    attempt_count = attempt_count + %(attempts)s, lost_count = lost_count + %(losses)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: to_accepted
-- anything but accepted -> accepted: evidence arrived.
UPDATE email_outbox SET
    status = 'accepted', lease_owner = NULL, lease_until = NULL, next_attempt_at = NULL, evidence = %(evidence)s,
    failure_category = NULL, failure_code = NULL, completed_at = clock_timestamp(),
    provider_message_id = coalesce(%(provider_message_id)s, provider_message_id),
    attempt_count = attempt_count + %(attempts)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: to_failed
-- sending|unknown -> failed: refused for good, budget spent, or never to be known.
UPDATE email_outbox SET
    status = 'failed', lease_owner = NULL, lease_until = NULL, next_attempt_at = NULL, completed_at = clock_timestamp(),
    open_provider = CASE WHEN %(still_open)s THEN open_provider END,
    payload_digest = CASE WHEN %(still_open)s THEN payload_digest END,
    failure_category = %(failure_category)s, failure_code = %(failure_code)s,
    last_error = coalesce(%(last_error)s, last_error),
    attempt_count = attempt_count + %(attempts)s, lost_count = lost_count + %(losses)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: to_expired
-- pending|sending|unknown -> expired: the gate closed before an answered hand-over.
UPDATE email_outbox SET
    status = 'expired', lease_owner = NULL, lease_until = NULL, next_attempt_at = NULL, completed_at = clock_timestamp(),
    open_provider = NULL, payload_digest = NULL,
    failure_category = %(failure_category)s, failure_code = %(failure_code)s,
    send_before = CASE WHEN %(gate_reason)s::text IS NULL THEN send_before ELSE 'epoch' END,
    gate_reason = coalesce(%(gate_reason)s, gate_reason), last_error = coalesce(%(last_error)s, last_error),
    attempt_count = attempt_count + %(attempts)s, lost_count = lost_count + %(losses)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: to_cancelled
-- pending|sending|unknown -> cancelled: the gate was closed by the client or an operator.
UPDATE email_outbox SET
    status = 'cancelled', lease_owner = NULL, lease_until = NULL, next_attempt_at = NULL, completed_at = clock_timestamp(),
    open_provider = NULL, payload_digest = NULL,
    send_before = CASE WHEN %(gate_reason)s::text IS NULL THEN send_before ELSE 'epoch' END,
    gate_reason = coalesce(%(gate_reason)s, gate_reason), last_error = coalesce(%(last_error)s, last_error),
    attempt_count = attempt_count + %(attempts)s, lost_count = lost_count + %(losses)s
WHERE id = %(id)s AND lease_token = %(lease_token)s AND status = %(before)s

-- name: shut_gate
-- sending|unknown -> the same: no hand-over from now on.
UPDATE email_outbox SET send_before = 'epoch', gate_reason = %(gate_reason)s
WHERE id = %(id)s AND status IN ('sending', 'unknown') AND gate_reason IS NULL

-- name: expire_verifications
-- requested -> expired, a batch. The delivery needs no write: its gate closed earlier.
WITH overdue AS MATERIALIZED (
    SELECT id FROM verifications WHERE status = 'requested' AND expires_at <= now()
    ORDER BY expires_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE verifications v SET status = 'expired'
FROM overdue WHERE v.id = ANY (ARRAY(SELECT id FROM overdue)) AND v.id = overdue.id AND v.status = 'requested'
RETURNING v.id
