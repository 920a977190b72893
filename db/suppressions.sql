-- Mailboxes that a client's mail must not reach.

-- name: add_suppression
-- A mailbox is suppressed from now on, or goes on being so with another reason and end. xmax 0: it is a new row.
INSERT INTO suppressions (id, client_id, email_canonical, reason, expires_at)
VALUES (%(id)s, %(client_id)s, %(email_canonical)s, %(reason)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (client_id, email_canonical)
DO UPDATE SET reason = excluded.reason, expires_at = excluded.expires_at
RETURNING email_canonical, reason, created_at, expires_at, xmax = 0 AS is_new

-- name: remove_suppression
-- Mail may go there again. No row: it was not suppressed.
DELETE FROM suppressions WHERE client_id = %(client_id)s AND email_canonical = %(email_canonical)s RETURNING id

-- name: list_suppressions
-- Those of one client or of all, the newest first; of one mailbox or of all.
SELECT c.name AS client, s.email_canonical, s.reason, s.created_at, s.expires_at
FROM suppressions s JOIN clients c ON c.id = s.client_id
WHERE (%(client_id)s::uuid IS NULL OR s.client_id = %(client_id)s)
  AND (%(email_canonical)s::text IS NULL OR s.email_canonical = %(email_canonical)s)
ORDER BY s.id DESC LIMIT %(limit)s
