-- Clients and their API keys. A key's secret is never stored: prefix to find it, SHA-256 to know it.

-- name: insert_client
-- A new client, enabled.
INSERT INTO clients (id, name, return_urls, is_test) VALUES (%(id)s, %(name)s, %(return_urls)s, %(is_test)s)
RETURNING id, name, return_urls, is_test, branding_id, created_at, disabled_at

-- name: list_clients
-- All clients, oldest first, with how many keys of each are good.
SELECT c.id, c.name, c.return_urls, c.is_test, c.branding_id, c.created_at, c.disabled_at,
       (SELECT count(*) FROM api_keys k WHERE k.client_id = c.id AND k.revoked_at IS NULL) AS keys
FROM clients c ORDER BY c.created_at, c.id

-- name: find_client
-- A client by its name.
SELECT id, name, return_urls, is_test, branding_id, created_at, disabled_at FROM clients WHERE name = %(name)s

-- name: lock_client
-- A client by its name, for whoever changes it.
SELECT id, name, return_urls, is_test, branding_id, created_at, disabled_at FROM clients WHERE name = %(name)s FOR UPDATE

-- name: disable_client
-- Switch a client off; the first time counts.
UPDATE clients SET disabled_at = coalesce(disabled_at, clock_timestamp()) WHERE id = %(id)s
RETURNING id, name, return_urls, is_test, branding_id, created_at, disabled_at

-- name: enable_client
-- Switch a client on again.
UPDATE clients SET disabled_at = NULL WHERE id = %(id)s
RETURNING id, name, return_urls, is_test, branding_id, created_at, disabled_at

-- name: set_return_urls
-- Where the page may lead back to from now on; what was requested before keeps its own.
UPDATE clients SET return_urls = %(return_urls)s WHERE id = %(id)s
RETURNING id, name, return_urls, is_test, branding_id, created_at, disabled_at

-- name: insert_key
-- Another key for a client.
INSERT INTO api_keys (id, client_id, prefix, key_hash) VALUES (%(id)s, %(client_id)s, %(prefix)s, %(key_hash)s)

-- name: list_keys
-- A client's keys, oldest first: never the keys themselves, which nobody has.
SELECT prefix, created_at, revoked_at FROM api_keys WHERE client_id = %(client_id)s ORDER BY created_at, id

-- name: find_key_of_any_state
-- The client that a key is or was of.
SELECT c.name FROM api_keys k JOIN clients c ON c.id = k.client_id WHERE k.prefix = %(prefix)s

-- name: revoke_key
-- A key stops working; the first time counts. No row: it was revoked before.
UPDATE api_keys SET revoked_at = clock_timestamp() WHERE prefix = %(prefix)s AND revoked_at IS NULL
RETURNING revoked_at

-- name: find_key
-- The key a caller presents, by its prefix, with its client. Revoked keys are as good as none.
SELECT k.key_hash, c.id, c.name, c.return_urls, c.is_test, c.branding_id, c.created_at, c.disabled_at
FROM api_keys k JOIN clients c ON c.id = k.client_id
WHERE k.prefix = %(prefix)s AND k.revoked_at IS NULL
