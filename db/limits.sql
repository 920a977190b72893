-- Leaky buckets: a level at an instant, leaking `capacity` an hour.

-- name: take
-- A drop into each bucket, locked in the given order. An overflow violates ck_rate_limits_level.
INSERT INTO rate_limits AS r (kind, subject, level, at, empty_at, capacity)
SELECT b.kind, b.subject, 1, clock_timestamp(), clock_timestamp() + interval '1 hour' / b.capacity, b.capacity
FROM unnest(%(kinds)s::text[], %(subjects)s::bytea[], %(capacities)s::float[])
     WITH ORDINALITY AS b (kind, subject, capacity, place)
ORDER BY b.place
ON CONFLICT (kind, subject) DO UPDATE SET
    level = 1 + greatest(0, r.level - excluded.capacity
                                      * greatest(0, extract(epoch FROM clock_timestamp() - r.at))::float / 3600),
    at = clock_timestamp(),
    empty_at = clock_timestamp() + interval '1 hour' * (1 + r.level) / excluded.capacity,
    capacity = excluded.capacity

-- name: read_wait
-- Seconds until another drop fits; above zero: it is full.
SELECT (1 - capacity + greatest(0, level - capacity * greatest(0, extract(epoch FROM clock_timestamp() - at))::float / 3600))
       * 3600 / capacity AS seconds
FROM (SELECT level, at, %(capacity)s::float AS capacity FROM rate_limits
      WHERE kind = %(kind)s AND subject = %(subject)s) r

-- name: prune
-- A batch of buckets that are empty again.
DELETE FROM rate_limits WHERE (kind, subject) IN (
    SELECT kind, subject FROM rate_limits WHERE empty_at < now() ORDER BY empty_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED)
RETURNING kind
