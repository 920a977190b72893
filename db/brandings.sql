-- Brandings: what a client's mail looks like. Rows are never changed; a client points at one.

-- name: lock_client
-- Whose branding is about to change, with the one there is. Another change waits here; new verifications do not.
SELECT c.branding_id, b.body, b.created_at
FROM clients c LEFT JOIN brandings b ON b.id = c.branding_id WHERE c.id = %(client_id)s
FOR NO KEY UPDATE OF c

-- name: insert_branding
-- Another branding of a client.
INSERT INTO brandings (id, client_id, body) VALUES (%(id)s, %(client_id)s, %(body)s) RETURNING id, body, created_at

-- name: point_client
-- What the client's new verifications are rendered with; null: our own words. Those that exist keep theirs.
UPDATE clients SET branding_id = %(branding_id)s WHERE id = %(client_id)s

-- name: find_current
-- A client's branding, if it has one.
SELECT b.id, b.body, b.created_at FROM clients c JOIN brandings b ON b.id = c.branding_id WHERE c.id = %(client_id)s

-- name: read_body
-- One branding, whoever it belongs to.
SELECT body FROM brandings WHERE id = %(id)s

-- name: find_client
-- A client by its name.
SELECT id FROM clients WHERE name = %(name)s
