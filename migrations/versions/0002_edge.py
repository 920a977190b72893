"""Test clients and their route, brandings, who cancelled, limits, and the indexes of cooldown, backlog and limits.

Revision: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NOW = sa.text("clock_timestamp()")
_WAITING = sa.text("status = 'pending'")
_UNKNOWN = sa.text("status = 'unknown'")
_UNFINISHED = sa.text("status IN ('pending', 'sending', 'unknown')")

_RECORD_VERIFICATION_CHANGE = """
CREATE OR REPLACE FUNCTION record_verification_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO state_changes (client_id, verification_id, before, after, code)
    VALUES (NEW.client_id, NEW.id, OLD.status, NEW.status, NEW.cancelled_by);
    RETURN NULL;
END $$
"""
_RECORD_VERIFICATION_CHANGE_BEFORE = """
CREATE OR REPLACE FUNCTION record_verification_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO state_changes (client_id, verification_id, before, after)
    VALUES (NEW.client_id, NEW.id, OLD.status, NEW.status);
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    _brandings()
    _clients_and_verifications()
    _outbox()
    _rate_limits()
    op.execute(_RECORD_VERIFICATION_CHANGE)


def _brandings() -> None:
    op.create_table(
        "brandings",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("client_id", sa.Uuid(), sa.ForeignKey("clients.id"), nullable=False),
        sa.Column("body", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=_NOW, nullable=False),
    )
    op.create_index("ix_brandings_client_id", "brandings", ["client_id"])


def _clients_and_verifications() -> None:
    op.add_column(
        "clients", sa.Column("is_test", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column("clients", sa.Column("branding_id", sa.Uuid(), sa.ForeignKey("brandings.id")))
    op.add_column("verifications", sa.Column("branding_id", sa.Uuid(), sa.ForeignKey("brandings.id")))
    op.add_column("verifications", sa.Column("cancelled_by", sa.Text()))
    op.create_check_constraint(
        "cancelled_by",
        "verifications",
        "cancelled_by IS NULL OR (status = 'cancelled' AND cancelled_by IN ('client', 'recipient', 'operator'))",
    )
    op.create_index(
        "ix_verifications_address", "verifications", ["client_id", "email_canonical", "created_at"]
    )


def _outbox() -> None:
    op.add_column("email_outbox", sa.Column("client_id", sa.Uuid()))
    op.add_column(
        "email_outbox", sa.Column("route", sa.Text(), server_default=sa.text("'live'"), nullable=False)
    )
    op.create_check_constraint("route", "email_outbox", "route IN ('live', 'test')")
    # Left behind by a downgrade, which does not know the route.
    op.execute(
        "UPDATE email_outbox SET route = 'test' WHERE 'simulator' IN (coalesce(provider, ''), coalesce(open_provider, ''))"
    )
    op.create_check_constraint(
        "provider_on_route",
        "email_outbox",
        "(provider = 'simulator') = (route = 'test') AND (open_provider = 'simulator') = (route = 'test')",
    )
    # Only unfinished rows are counted by client.
    op.execute(
        """
        UPDATE email_outbox o SET client_id = v.client_id FROM verifications v
        WHERE v.id = o.verification_id AND o.status IN ('pending', 'sending', 'unknown')
        """
    )
    op.create_index("ix_outbox_unfinished", "email_outbox", ["client_id"], postgresql_where=_UNFINISHED)
    for name, where in (("ix_outbox_pending_due", _WAITING), ("ix_outbox_unknown_due", _UNKNOWN)):
        op.drop_index(name, table_name="email_outbox")
        op.create_index(name, "email_outbox", ["route", "next_attempt_at", "id"], postgresql_where=where)


def _rate_limits() -> None:
    op.create_table(
        "rate_limits",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.LargeBinary(), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("empty_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("capacity", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "subject"),
        sa.CheckConstraint("level <= capacity", name="level"),
        prefixes=["UNLOGGED"],
    )
    op.create_index("ix_rate_limits_empty", "rate_limits", ["empty_at"])


def downgrade() -> None:
    _refuse_with_test_mail()
    op.execute(_RECORD_VERIFICATION_CHANGE_BEFORE)
    op.drop_table("rate_limits")
    for name, where in (("ix_outbox_pending_due", _WAITING), ("ix_outbox_unknown_due", _UNKNOWN)):
        op.drop_index(name, table_name="email_outbox")
        op.create_index(name, "email_outbox", ["next_attempt_at", "id"], postgresql_where=where)
    op.drop_index("ix_outbox_unfinished", table_name="email_outbox")
    op.drop_constraint("provider_on_route", "email_outbox", type_="check")
    op.drop_constraint("route", "email_outbox", type_="check")
    op.drop_column("email_outbox", "route")
    op.drop_column("email_outbox", "client_id")
    op.drop_index("ix_verifications_address", table_name="verifications")
    op.drop_constraint("cancelled_by", "verifications", type_="check")
    op.drop_column("verifications", "cancelled_by")
    op.drop_column("verifications", "branding_id")
    op.drop_column("clients", "branding_id")
    op.drop_column("clients", "is_test")
    op.drop_table("brandings")


def _refuse_with_test_mail() -> None:
    """The release before knows no routes: it would send what waits to people."""
    op.execute(
        """
        DO $$ BEGIN
            IF EXISTS (SELECT FROM email_outbox WHERE route = 'test' AND status IN ('pending', 'sending', 'unknown')) THEN
                RAISE EXCEPTION 'test mail is waiting, which the release before would send to people: cancel it first';
            END IF;
            IF EXISTS (SELECT FROM clients WHERE is_test AND disabled_at IS NULL) THEN
                RAISE EXCEPTION 'there are test clients, whose mail the release before would send: disable them first';
            END IF;
        END $$
        """
    )
