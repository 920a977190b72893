-- The feed of state changes. A change gets its number (`seq`) after it was committed, from one numberer at a time: what a
-- reader has seen up to a number is all there will ever be up to it.

-- name: number_changes
-- Give the changes committed so far their place in the feed. The counter's lock, taken in a statement before, lets one
-- numberer at a time see a snapshot in which all smaller numbers are committed.
WITH fresh AS MATERIALIZED (
    SELECT id, row_number() OVER (ORDER BY id) AS place FROM state_changes
    WHERE seq IS NULL ORDER BY id LIMIT %(limit)s
), numbered AS (
    UPDATE state_changes c SET seq = counter.seq + fresh.place
    FROM fresh, (SELECT seq FROM change_counter) counter
    WHERE c.id = ANY (ARRAY(SELECT id FROM fresh)) AND c.id = fresh.id
    RETURNING c.seq
)
UPDATE change_counter SET seq = seq + (SELECT count(*) FROM numbered)
RETURNING (SELECT count(*) FROM numbered) AS numbered

-- name: read_counter
-- The last number given, and whether there are changes without one.
SELECT seq, EXISTS (SELECT FROM state_changes WHERE seq IS NULL) AS has_unnumbered FROM change_counter

-- name: read_changes
-- A client's numbered changes after a place in the feed, with what never changes about their verification. Codes say why
-- something did not go well; of what did, the row may still carry an older one.
WITH page AS MATERIALIZED (
    SELECT seq, at, verification_id, delivery_id, before, after, code, evidence FROM state_changes
    WHERE client_id = %(client_id)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s
)
SELECT page.seq, page.at, page.verification_id, page.delivery_id, a.external_id, v.purpose, page.before, page.after,
       CASE WHEN page.evidence IS NULL THEN page.code END AS code, page.evidence
FROM page
CROSS JOIN LATERAL (SELECT account_id, purpose FROM verifications WHERE id = page.verification_id) v
CROSS JOIN LATERAL (SELECT external_id FROM accounts WHERE id = v.account_id) a
ORDER BY page.seq
