-- One row a release phase: a deploy receipt.

-- name: insert_release
-- How a release phase ended.
INSERT INTO releases (id, commit, schema_before, schema_after, outcome, started_at, finished_at)
VALUES (%(id)s, %(commit)s, %(schema_before)s, %(schema_after)s, %(outcome)s,
        clock_timestamp() - make_interval(secs => %(seconds)s), clock_timestamp())
