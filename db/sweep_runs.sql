-- Sweeps, one a slot of time, whoever comes first.

-- name: begin
-- Take the present slot; no row: another sweep has it.
INSERT INTO sweep_runs AS r (slot, worker, trigger)
VALUES (floor(extract(epoch FROM clock_timestamp()) / %(interval)s), %(worker)s, %(trigger)s)
ON CONFLICT (slot) DO UPDATE SET trigger = 'beat' WHERE excluded.trigger = 'beat' AND r.trigger = 'timer'
RETURNING slot, xmax = 0 AS is_ours

-- name: finish
UPDATE sweep_runs SET finished_at = clock_timestamp(), counts = %(counts)s WHERE slot = %(slot)s

-- name: prune
-- Old runs, a batch.
DELETE FROM sweep_runs WHERE slot IN (
    SELECT slot FROM sweep_runs WHERE started_at < now() - make_interval(secs => %(keep)s) ORDER BY slot LIMIT 1000)

-- name: seconds_since_beat
-- How long ago a sweep last came through the broker; null if none is on record.
SELECT extract(epoch FROM clock_timestamp() - max(started_at))::float AS seconds
FROM (SELECT started_at FROM sweep_runs WHERE trigger = 'beat' ORDER BY started_at DESC LIMIT 1) newest
