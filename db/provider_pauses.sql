-- Pauses of providers, by sender. Locked last (docs/architecture.md, lock order).

-- name: pause
-- Pause a provider; a refusal counts towards the backoff only if its attempt began after the last one counted, so that
-- sixteen sends refused together are one refusal.
INSERT INTO provider_status AS s (provider, sender, kind, code, refusals, refused_at, paused_until)
VALUES (%(provider)s, %(sender)s, %(kind)s, %(code)s, 1, clock_timestamp(),
        clock_timestamp() + make_interval(secs => greatest(%(retry_after)s::float, (%(backoff)s::float[])[1])))
ON CONFLICT (provider, sender) DO UPDATE SET
    kind = excluded.kind, code = excluded.code, refusals = s.refusals + 1, refused_at = excluded.refused_at,
    paused_until = clock_timestamp() + make_interval(secs => greatest(
        %(retry_after)s::float, (%(backoff)s::float[])[least(s.refusals + 1, cardinality(%(backoff)s::float[]))]))
WHERE s.kind <> 'operator' AND s.refused_at < %(refused_after)s

-- name: clear
-- A probe got through: the provider takes mail again. An operator's pause stays.
DELETE FROM provider_status WHERE provider = %(provider)s AND sender = %(sender)s AND kind <> 'operator'

-- name: all_paused
-- Whether none of these providers takes mail from this sender now.
SELECT NOT EXISTS (
    SELECT FROM unnest(%(providers)s::text[]) AS c (name)
    LEFT JOIN provider_status s ON s.provider = c.name AND s.sender = %(sender)s
    WHERE s.paused_until IS NULL OR s.paused_until <= now()
) AS paused
