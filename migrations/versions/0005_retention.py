"""The indexes by which the sweep finds what has been over for the retention, and what was answered late.

Revision: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_verifications_retention",
        "verifications",
        ["created_at", "id"],
        postgresql_where=sa.text("anonymised_at IS NULL AND status <> 'requested'"),
    )
    op.create_index(
        "ix_attempts_late",
        "delivery_attempts",
        ["finished_at", "delivery_id"],
        postgresql_where=sa.text("stale"),
    )
    op.drop_index("ix_attempts_stale", table_name="delivery_attempts")


def downgrade() -> None:
    op.create_index(
        "ix_attempts_stale", "delivery_attempts", ["delivery_id"], postgresql_where=sa.text("stale")
    )
    op.drop_index("ix_attempts_late", table_name="delivery_attempts")
    op.drop_index("ix_verifications_retention", table_name="verifications")
