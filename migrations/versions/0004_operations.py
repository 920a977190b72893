"""What operators did, and the index by which a provider's id of a mail leads to its delivery.

Revision: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NOW = sa.text("clock_timestamp()")
_STATES = "'pending', 'sending', 'unknown', 'accepted', 'failed', 'expired', 'cancelled'"


def upgrade() -> None:
    op.create_table(
        "operator_actions",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("delivery_id", sa.Uuid(), sa.ForeignKey("email_outbox.id"), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("at_stake", sa.Text()),
        sa.Column("from_state", sa.Text(), nullable=False),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=_NOW, nullable=False),
        sa.CheckConstraint("action IN ('retry', 'resolve', 'cancel')", name="action"),
        sa.CheckConstraint(f"from_state IN ({_STATES})", name="from_state"),
        sa.CheckConstraint(f"to_state IN ({_STATES})", name="to_state"),
    )
    op.create_index("ix_operator_actions_delivery_id", "operator_actions", ["delivery_id"])
    # Evidence may name an id that no attempt was answered with.
    op.create_index(
        "ix_outbox_provider_message",
        "email_outbox",
        ["provider_message_id"],
        postgresql_where=sa.text("provider_message_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_outbox_provider_message", table_name="email_outbox")
    op.drop_table("operator_actions")
