"""The indexes of lists and of the feed, and the client of deliveries that an older release writes.

Revision: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_UNFINISHED = sa.text("status IN ('pending', 'sending', 'unknown')")
_FINISHED = sa.text("status IN ('accepted', 'failed', 'expired', 'cancelled')")
_NUMBERED = sa.text("seq IS NOT NULL")
_OF_FEED = ["client_id", "seq"]
_OF_CLIENT = ["client_id", "status", "created_at", "verification_id"]

# An older release does not know the column; its deliveries must be found by client, too.
_FILL_CLIENT = """
CREATE FUNCTION fill_delivery_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.client_id := (SELECT v.client_id FROM verifications v WHERE v.id = NEW.verification_id);
    RETURN NEW;
END $$
"""
_FILL_CLIENT_TRIGGER = """
CREATE TRIGGER fill_delivery_client BEFORE INSERT ON email_outbox
FOR EACH ROW WHEN (NEW.client_id IS NULL) EXECUTE FUNCTION fill_delivery_client()
"""


def upgrade() -> None:
    op.create_index("ix_verifications_status", "verifications", ["client_id", "status", "created_at", "id"])
    op.create_index("ix_verifications_account_newest", "verifications", ["account_id", "created_at", "id"])
    op.drop_index("ix_verifications_account", table_name="verifications")
    op.create_index(
        "ix_verifications_consumed",
        "verifications",
        ["client_id", "consumed_at", "id"],
        postgresql_where=sa.text("consumed_at IS NOT NULL"),
    )
    op.execute(_FILL_CLIENT)
    op.execute(_FILL_CLIENT_TRIGGER)
    # Unfinished ones have it since 0002, or by the trigger; no worker waits for a finished one.
    op.execute(
        """
        UPDATE email_outbox o SET client_id = v.client_id FROM verifications v
        WHERE v.id = o.verification_id AND o.client_id IS NULL
        """
    )
    op.drop_index("ix_outbox_unfinished", table_name="email_outbox")
    op.create_index("ix_outbox_unfinished", "email_outbox", _OF_CLIENT, postgresql_where=_UNFINISHED)
    op.create_index("ix_outbox_finished", "email_outbox", _OF_CLIENT, postgresql_where=_FINISHED)
    # The counter gives each number once; an index by number alone tempts the planner away from a client's own.
    op.drop_index("ix_state_changes_feed", table_name="state_changes")
    op.drop_constraint("uq_state_changes_seq", "state_changes", type_="unique")
    op.create_index(
        "ix_state_changes_feed", "state_changes", _OF_FEED, unique=True, postgresql_where=_NUMBERED
    )


def downgrade() -> None:
    op.drop_index("ix_state_changes_feed", table_name="state_changes")
    op.create_unique_constraint("uq_state_changes_seq", "state_changes", ["seq"])
    op.create_index("ix_state_changes_feed", "state_changes", _OF_FEED, postgresql_where=_NUMBERED)
    op.drop_index("ix_outbox_finished", table_name="email_outbox")
    op.drop_index("ix_outbox_unfinished", table_name="email_outbox")
    op.create_index("ix_outbox_unfinished", "email_outbox", ["client_id"], postgresql_where=_UNFINISHED)
    op.execute("DROP TRIGGER fill_delivery_client ON email_outbox")
    op.execute("DROP FUNCTION fill_delivery_client()")
    for name in ("ix_verifications_consumed", "ix_verifications_account_newest", "ix_verifications_status"):
        op.drop_index(name, table_name="verifications")
    op.create_index("ix_verifications_account", "verifications", ["account_id", "purpose", "created_at"])
