"""The first schema: every table, constraint and index, and the trigger that records each change of state.

Revision: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


# Written by the database, so that no statement can forget to. Claims are left out: they are the hot path, and the
# attempt that follows says the same.
_RECORD_DELIVERY_CHANGE = """
CREATE FUNCTION record_delivery_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO state_changes (client_id, verification_id, delivery_id, before, after, code, provider, evidence)
    SELECT v.client_id, v.id, NEW.id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status,
           coalesce(NEW.failure_code, NEW.gate_reason, NEW.last_error), NEW.provider, NEW.evidence
    FROM verifications v WHERE v.id = NEW.verification_id;
    RETURN NULL;
END $$
"""
_RECORD_VERIFICATION_CHANGE = """
CREATE FUNCTION record_verification_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO state_changes (client_id, verification_id, before, after)
    VALUES (NEW.client_id, NEW.id, OLD.status, NEW.status);
    RETURN NULL;
END $$
"""
_TRIGGERS = (
    """
    CREATE TRIGGER record_delivery_created AFTER INSERT ON email_outbox
    FOR EACH ROW EXECUTE FUNCTION record_delivery_change()
    """,
    """
    CREATE TRIGGER record_delivery_change AFTER UPDATE OF status ON email_outbox
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status <> 'sending')
    EXECUTE FUNCTION record_delivery_change()
    """,
    """
    CREATE TRIGGER record_verification_change AFTER UPDATE OF status ON verifications
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION record_verification_change()
    """,
)


def upgrade() -> None:
    op.create_table(
        "change_counter",
        sa.Column("one", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("one", name=op.f("ck_change_counter_one")),
        sa.PrimaryKeyConstraint("one", name=op.f("pk_change_counter")),
    )
    op.create_table(
        "clients",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("return_urls", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clients")),
        sa.UniqueConstraint("name", name=op.f("uq_clients_name")),
    )
    op.create_table(
        "delivery_stats",
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("total", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("minute", "name", "label", name=op.f("pk_delivery_stats")),
    )
    op.create_table(
        "provider_status",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("paused_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("refusals", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "refused_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("kind IN ('away', 'config', 'operator')", name=op.f("ck_provider_status_kind")),
        sa.PrimaryKeyConstraint("provider", "sender", name=op.f("pk_provider_status")),
    )
    op.create_table(
        "releases",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("commit", sa.Text(), nullable=False),
        sa.Column("schema_before", sa.Text(), nullable=True),
        sa.Column("schema_after", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("outcome IN ('running', 'done', 'failed')", name=op.f("ck_releases_outcome")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
    )
    op.create_table(
        "state_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("client_id", sa.Uuid(), nullable=False),
        sa.Column("verification_id", sa.Uuid(), nullable=False),
        sa.Column("delivery_id", sa.Uuid(), nullable=True),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_state_changes")),
        sa.UniqueConstraint("seq", name=op.f("uq_state_changes_seq")),
    )
    op.create_index(
        "ix_state_changes_feed",
        "state_changes",
        ["client_id", "seq"],
        unique=False,
        postgresql_where=sa.text("seq IS NOT NULL"),
    )
    op.create_index(
        "ix_state_changes_unnumbered",
        "state_changes",
        ["id"],
        unique=False,
        postgresql_where=sa.text("seq IS NULL"),
    )
    op.create_index(
        op.f("ix_state_changes_verification_id"), "state_changes", ["verification_id"], unique=False
    )
    op.create_table(
        "sweep_runs",
        sa.Column("slot", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("counts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint("trigger IN ('beat', 'timer')", name=op.f("ck_sweep_runs_trigger")),
        sa.PrimaryKeyConstraint("slot", name=op.f("pk_sweep_runs")),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=True),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name=op.f("fk_accounts_client_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("client_id", "external_id", name=op.f("uq_accounts_client_id_external_id")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.Uuid(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name=op.f("fk_api_keys_client_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_keys_prefix")),
    )
    op.create_index(op.f("ix_api_keys_client_id"), "api_keys", ["client_id"], unique=False)
    op.create_table(
        "suppressions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.Uuid(), nullable=False),
        sa.Column("email_canonical", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name=op.f("fk_suppressions_client_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suppressions")),
        sa.UniqueConstraint(
            "client_id", "email_canonical", name=op.f("uq_suppressions_client_id_email_canonical")
        ),
    )
    op.create_table(
        "verifications",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.Uuid(), nullable=False),
        sa.Column("account_id", sa.Uuid(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'requested'"), nullable=False),
        sa.Column("email", sa.Text(), nullable=True),
        sa.Column("email_canonical", sa.Text(), nullable=True),
        sa.Column("token_key_id", sa.Text(), nullable=False),
        sa.Column("token_nonce", sa.LargeBinary(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=True),
        sa.Column("template_version", sa.SmallInteger(), nullable=False),
        sa.Column("locale", sa.Text(), nullable=True),
        sa.Column("return_url", sa.Text(), nullable=True),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("correlation_id", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("consumed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_by", sa.Uuid(), nullable=True),
        sa.Column("anonymised_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'consumed') = (consumed_at IS NOT NULL)", name=op.f("ck_verifications_consumed_at")
        ),
        sa.CheckConstraint(
            "(status = 'superseded') = (superseded_by IS NOT NULL)",
            name=op.f("ck_verifications_superseded_by"),
        ),
        sa.CheckConstraint(
            "anonymised_at IS NULL OR status <> 'requested'", name=op.f("ck_verifications_anonymised_is_over")
        ),
        sa.CheckConstraint(
            "status IN ('requested', 'consumed', 'expired', 'superseded', 'cancelled')",
            name=op.f("ck_verifications_status"),
        ),
        sa.CheckConstraint(
            "(anonymised_at IS NULL) = (email IS NOT NULL) AND (email IS NULL) = (email_canonical IS NULL)"
            " AND (email IS NULL) = (token_hash IS NULL)",
            name=op.f("ck_verifications_anonymised"),
        ),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_verifications_expires_at")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_verifications_account_id")),
        sa.ForeignKeyConstraint(["client_id"], ["clients.id"], name=op.f("fk_verifications_client_id")),
        sa.ForeignKeyConstraint(
            ["superseded_by"],
            ["verifications.id"],
            name=op.f("fk_verifications_superseded_by"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
        sa.UniqueConstraint(
            "client_id", "idempotency_key", name=op.f("uq_verifications_client_id_idempotency_key")
        ),
        sa.UniqueConstraint("token_hash", name=op.f("uq_verifications_token_hash")),
    )
    op.create_index(
        "ix_verifications_account", "verifications", ["account_id", "purpose", "created_at"], unique=False
    )
    op.create_index(
        "ix_verifications_client", "verifications", ["client_id", "created_at", "id"], unique=False
    )
    op.create_index("ix_verifications_correlation", "verifications", ["correlation_id"], unique=False)
    op.create_index(
        "ix_verifications_expiry",
        "verifications",
        ["expires_at", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'requested'"),
    )
    op.create_index(
        "uq_verifications_one_requested",
        "verifications",
        ["account_id", "purpose"],
        unique=True,
        postgresql_where=sa.text("status = 'requested'"),
    )
    op.create_table(
        "email_outbox",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("verification_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_token", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempt_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lost_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("replay_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("send_before", sa.DateTime(timezone=True), nullable=False),
        sa.Column("gate_reason", sa.Text(), nullable=True),
        sa.Column("open_provider", sa.Text(), nullable=True),
        sa.Column("payload_digest", sa.LargeBinary(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("failure_category", sa.Text(), nullable=True),
        sa.Column("failure_code", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(completed_at IS NOT NULL) = (status IN ('accepted', 'cancelled', 'expired', 'failed'))",
            name=op.f("ck_email_outbox_status_completed_at"),
        ),
        sa.CheckConstraint(
            "(evidence IS NOT NULL) = (status IN ('accepted'))", name=op.f("ck_email_outbox_status_evidence")
        ),
        sa.CheckConstraint(
            "(gate_reason IS NULL) = (send_before > 'epoch')", name=op.f("ck_email_outbox_gate")
        ),
        sa.CheckConstraint(
            "(lease_owner IS NOT NULL) = (status IN ('sending'))",
            name=op.f("ck_email_outbox_status_lease_owner"),
        ),
        sa.CheckConstraint(
            "(lease_until IS NOT NULL) = (status IN ('sending'))",
            name=op.f("ck_email_outbox_status_lease_until"),
        ),
        sa.CheckConstraint(
            "(next_attempt_at IS NOT NULL) = (status IN ('pending', 'unknown'))",
            name=op.f("ck_email_outbox_status_next_attempt_at"),
        ),
        sa.CheckConstraint(
            "evidence IN ('response', 'lookup', 'webhook', 'consumed', 'operator')",
            name=op.f("ck_email_outbox_evidence"),
        ),
        sa.CheckConstraint(
            "failure_category IN ('recipient', 'content', 'config', 'exhausted', 'unresolved', 'internal')",
            name=op.f("ck_email_outbox_failure_category"),
        ),
        sa.CheckConstraint(
            "failure_category IS NOT NULL OR NOT (status IN ('failed'))",
            name=op.f("ck_email_outbox_needs_failure_category"),
        ),
        sa.CheckConstraint(
            "failure_category IS NULL OR status IN ('expired', 'failed')",
            name=op.f("ck_email_outbox_allows_failure_category"),
        ),
        sa.CheckConstraint(
            "failure_code IS NOT NULL OR NOT (status IN ('failed'))",
            name=op.f("ck_email_outbox_needs_failure_code"),
        ),
        sa.CheckConstraint(
            "failure_code IS NULL OR status IN ('expired', 'failed')",
            name=op.f("ck_email_outbox_allows_failure_code"),
        ),
        sa.CheckConstraint(
            "gate_reason IN ('superseded', 'cancelled', 'consumed')", name=op.f("ck_email_outbox_gate_reason")
        ),
        sa.CheckConstraint(
            "open_provider IS NOT NULL OR NOT (status IN ('unknown'))",
            name=op.f("ck_email_outbox_needs_open_provider"),
        ),
        sa.CheckConstraint(
            "open_provider IS NULL OR status IN ('accepted', 'failed', 'sending', 'unknown')",
            name=op.f("ck_email_outbox_allows_open_provider"),
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'sending', 'unknown', 'accepted', 'failed', 'expired', 'cancelled')",
            name=op.f("ck_email_outbox_status"),
        ),
        sa.CheckConstraint(
            "(failure_category IS NULL) = (failure_code IS NULL)", name=op.f("ck_email_outbox_failure")
        ),
        sa.CheckConstraint(
            "(open_provider IS NULL) = (payload_digest IS NULL)", name=op.f("ck_email_outbox_open_hand_over")
        ),
        sa.CheckConstraint(
            "lease_token >= 0 AND attempt_count >= 0 AND lost_count >= 0 AND replay_count >= 0",
            name=op.f("ck_email_outbox_counters"),
        ),
        sa.ForeignKeyConstraint(
            ["verification_id"], ["verifications.id"], name=op.f("fk_email_outbox_verification_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_email_outbox")),
        sa.UniqueConstraint("verification_id", name=op.f("uq_email_outbox_verification_id")),
    )
    op.create_index(
        "ix_outbox_leases",
        "email_outbox",
        ["lease_until", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'sending'"),
    )
    op.create_index(
        "ix_outbox_pending_due",
        "email_outbox",
        ["next_attempt_at", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_outbox_pending_gate",
        "email_outbox",
        ["send_before", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_outbox_unknown_due",
        "email_outbox",
        ["next_attempt_at", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'unknown'"),
    )
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", sa.Uuid(), nullable=False),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("handed_over_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("stale", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("response_status", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=False),
        sa.Column("release", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('accepted', 'transient', 'permanent', 'unknown', 'refused_us', 'not_sent', 'lost')",
            name=op.f("ck_delivery_attempts_outcome"),
        ),
        sa.CheckConstraint(
            "outcome NOT IN ('accepted', 'unknown') OR handed_over_at IS NOT NULL",
            name=op.f("ck_delivery_attempts_handed_over"),
        ),
        sa.CheckConstraint(
            "(outcome IS NULL) = (finished_at IS NULL)", name=op.f("ck_delivery_attempts_finished")
        ),
        sa.CheckConstraint(
            "handed_over_at IS NULL OR provider IS NOT NULL", name=op.f("ck_delivery_attempts_provider")
        ),
        sa.CheckConstraint(
            "outcome IS NOT NULL OR handed_over_at IS NOT NULL",
            name=op.f("ck_delivery_attempts_says_something"),
        ),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["email_outbox.id"], name=op.f("fk_delivery_attempts_delivery_id")
        ),
        sa.PrimaryKeyConstraint("delivery_id", "lease_token", name=op.f("pk_delivery_attempts")),
    )
    op.create_index(
        "ix_attempts_provider_message",
        "delivery_attempts",
        ["provider_message_id"],
        unique=False,
        postgresql_where=sa.text("provider_message_id IS NOT NULL"),
    )
    op.create_index(
        "ix_attempts_stale",
        "delivery_attempts",
        ["delivery_id"],
        unique=False,
        postgresql_where=sa.text("stale"),
    )
    op.create_table(
        "provider_events",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("delivery_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "received_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["email_outbox.id"], name=op.f("fk_provider_events_delivery_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_provider_events")),
        sa.UniqueConstraint("provider", "event_id", name=op.f("uq_provider_events_provider_event_id")),
    )
    op.create_index(op.f("ix_provider_events_delivery_id"), "provider_events", ["delivery_id"], unique=False)
    op.execute("INSERT INTO change_counter DEFAULT VALUES")
    op.execute(_RECORD_DELIVERY_CHANGE)
    op.execute(_RECORD_VERIFICATION_CHANGE)
    for trigger in _TRIGGERS:
        op.execute(trigger)


def downgrade() -> None:
    op.drop_index(op.f("ix_provider_events_delivery_id"), table_name="provider_events")
    op.drop_table("provider_events")
    op.drop_index("ix_attempts_stale", table_name="delivery_attempts", postgresql_where=sa.text("stale"))
    op.drop_index(
        "ix_attempts_provider_message",
        table_name="delivery_attempts",
        postgresql_where=sa.text("provider_message_id IS NOT NULL"),
    )
    op.drop_table("delivery_attempts")
    op.drop_index(
        "ix_outbox_unknown_due", table_name="email_outbox", postgresql_where=sa.text("status = 'unknown'")
    )
    op.drop_index(
        "ix_outbox_pending_gate", table_name="email_outbox", postgresql_where=sa.text("status = 'pending'")
    )
    op.drop_index(
        "ix_outbox_pending_due", table_name="email_outbox", postgresql_where=sa.text("status = 'pending'")
    )
    op.drop_index(
        "ix_outbox_leases", table_name="email_outbox", postgresql_where=sa.text("status = 'sending'")
    )
    op.drop_table("email_outbox")
    op.drop_index(
        "uq_verifications_one_requested",
        table_name="verifications",
        postgresql_where=sa.text("status = 'requested'"),
    )
    op.drop_index(
        "ix_verifications_expiry",
        table_name="verifications",
        postgresql_where=sa.text("status = 'requested'"),
    )
    op.drop_index("ix_verifications_correlation", table_name="verifications")
    op.drop_index("ix_verifications_client", table_name="verifications")
    op.drop_index("ix_verifications_account", table_name="verifications")
    op.drop_table("verifications")
    op.drop_table("suppressions")
    op.drop_index(op.f("ix_api_keys_client_id"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_table("accounts")
    op.drop_table("sweep_runs")
    op.drop_index(op.f("ix_state_changes_verification_id"), table_name="state_changes")
    op.drop_index(
        "ix_state_changes_unnumbered", table_name="state_changes", postgresql_where=sa.text("seq IS NULL")
    )
    op.drop_index(
        "ix_state_changes_feed", table_name="state_changes", postgresql_where=sa.text("seq IS NOT NULL")
    )
    op.drop_table("state_changes")
    op.drop_table("releases")
    op.drop_table("provider_status")
    op.drop_table("delivery_stats")
    op.drop_table("clients")
    op.drop_table("change_counter")
    op.execute("DROP FUNCTION record_delivery_change")
    op.execute("DROP FUNCTION record_verification_change")
