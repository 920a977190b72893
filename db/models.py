"""The tables. Rows that must not exist are refused by CHECK constraints built from `db.delivery_state`.

Times are `timestamptz` and PostgreSQL's own. The first release of each column is in `migrations/versions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from db import delivery_state as ds

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

VERIFICATION_STATUSES = ("requested", "consumed", "expired", "superseded", "cancelled")
_NOW = text("clock_timestamp()")


def _id() -> Column[object]:
    return Column("id", Uuid, primary_key=True)


def _at(name: str, *, nullable: bool = True) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _created_at(name: str = "created_at") -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=_NOW)


def _count(name: str) -> Column[object]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def _where_status(column: str) -> Iterable[CheckConstraint]:
    """`column` is set in each state that requires it and null in each that does not allow it."""
    required, allowed = ds.REQUIRED_IN[column], ds.ALLOWED_IN[column]
    if required == allowed:
        yield CheckConstraint(f"({column} IS NOT NULL) = ({_in(required)})", name=f"status_{column}")
        return
    yield CheckConstraint(f"{column} IS NOT NULL OR NOT ({_in(required)})", name=f"needs_{column}")
    yield CheckConstraint(f"{column} IS NULL OR {_in(allowed)}", name=f"allows_{column}")


def _in(states: Iterable[StrEnum]) -> str:
    listed = ", ".join(f"'{state}'" for state in sorted(states))
    return f"status IN ({listed})"


clients = Table(
    "clients",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("return_urls", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    # A test client's mail goes to the built-in simulator; it never meets a live one's accounts.
    Column("is_test", Boolean, nullable=False, server_default=text("false")),
    Column("branding_id", ForeignKey("brandings.id")),  # what new verifications are rendered with; null: ours
    _created_at(),
    _at("disabled_at"),
)

# Rows are never changed: a delivery that is replayed needs the bytes it was first sent with.
brandings = Table(
    "brandings",
    metadata,
    _id(),
    Column("client_id", ForeignKey("clients.id", use_alter=True), nullable=False, index=True),
    Column("body", JSONB, nullable=False),  # validated when it was set (tasks.branding)
    _created_at(),
)

api_keys = Table(
    "api_keys",
    metadata,
    _id(),
    Column("client_id", ForeignKey("clients.id"), nullable=False, index=True),
    Column("prefix", Text, nullable=False, unique=True),
    Column("key_hash", LargeBinary, nullable=False),  # SHA-256 of the whole key, which is random
    _created_at(),
    _at("revoked_at"),
)

accounts = Table(
    "accounts",
    metadata,
    _id(),
    Column("client_id", ForeignKey("clients.id"), nullable=False),
    Column("external_id", Text, nullable=False),  # the client's own `account_id`
    Column("email", Text),  # the confirmed address
    _at("activated_at"),
    _created_at(),
    UniqueConstraint("client_id", "external_id"),
)

verifications = Table(
    "verifications",
    metadata,
    _id(),
    Column("client_id", ForeignKey("clients.id"), nullable=False),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("status", Text, nullable=False, server_default=text("'requested'")),
    Column("email", Text),  # the exact recipient; null once anonymised
    Column("email_canonical", Text),  # for comparison only
    Column("token_key_id", Text, nullable=False),
    Column("token_nonce", LargeBinary, nullable=False),
    Column("token_hash", LargeBinary, unique=True),  # SHA-256 of the token; null once anonymised
    Column("template_version", SmallInteger, nullable=False),
    Column("branding_id", ForeignKey("brandings.id")),
    Column("locale", Text),
    Column("return_url", Text),
    Column("metadata", JSONB),
    Column("idempotency_key", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),  # keyed digest of the request's body
    Column("correlation_id", Text, nullable=False),
    _created_at(),
    _at("expires_at", nullable=False),
    _at("consumed_at"),
    Column("superseded_by", ForeignKey("verifications.id", deferrable=True, initially="DEFERRED")),
    Column("cancelled_by", Text),
    _at("anonymised_at"),
    UniqueConstraint("client_id", "idempotency_key"),
    _one_of("status", VERIFICATION_STATUSES),
    CheckConstraint("(status = 'consumed') = (consumed_at IS NOT NULL)", name="consumed_at"),
    CheckConstraint("(status = 'superseded') = (superseded_by IS NOT NULL)", name="superseded_by"),
    # An older release cancels without saying who; it never says so of another status.
    CheckConstraint(
        "cancelled_by IS NULL OR (status = 'cancelled' AND cancelled_by IN ('client', 'recipient', 'operator'))",
        name="cancelled_by",
    ),
    CheckConstraint("expires_at > created_at", name="expires_at"),
    CheckConstraint(
        "(anonymised_at IS NULL) = (email IS NOT NULL)"
        " AND (email IS NULL) = (email_canonical IS NULL)"
        " AND (email IS NULL) = (token_hash IS NULL)",
        name="anonymised",
    ),
    CheckConstraint("anonymised_at IS NULL OR status <> 'requested'", name="anonymised_is_over"),
    CheckConstraint(
        "anonymised_at IS NULL OR (metadata IS NULL AND return_url IS NULL)", name="anonymised_in_full"
    ),
    Index("ix_verifications_client", "client_id", "created_at", "id"),
    # Those of `db.listing`, in the order of its pages, by each filter; the first serves an account's hourly limit, too.
    Index("ix_verifications_account_newest", "account_id", "created_at", "id"),
    Index("ix_verifications_status", "client_id", "status", "created_at", "id"),
    Index(
        "ix_verifications_consumed",
        "client_id",
        "consumed_at",
        "id",
        postgresql_where=text("consumed_at IS NOT NULL"),
    ),
    Index("ix_verifications_address", "client_id", "email_canonical", "created_at"),
    Index(
        "uq_verifications_one_requested",
        "account_id",
        "purpose",
        unique=True,
        postgresql_where=text("status = 'requested'"),
    ),
    Index("ix_verifications_expiry", "expires_at", "id", postgresql_where=text("status = 'requested'")),
    Index("ix_verifications_correlation", "correlation_id"),
    Index(
        "ix_verifications_retention",
        "created_at",
        "id",
        postgresql_where=text("anonymised_at IS NULL AND status <> 'requested'"),
    ),
)

email_outbox = Table(
    "email_outbox",
    metadata,
    _id(),
    Column("verification_id", ForeignKey("verifications.id"), nullable=False, unique=True),
    Column("client_id", Uuid),  # a trigger fills it for an older release
    # Which workers' providers may take it: `live` (MAIL_URL's) or `test` (the simulator).
    Column("route", Text, nullable=False, server_default=text("'live'")),
    Column("status", Text, nullable=False, server_default=text("'pending'")),
    Column("lease_owner", Text),
    _at("lease_until"),
    Column("lease_token", BigInteger, nullable=False, server_default=text("0")),
    _count("attempt_count"),
    _count("lost_count"),
    _count("replay_count"),
    _at("next_attempt_at"),
    _at("send_before", nullable=False),
    Column("gate_reason", Text),
    Column("open_provider", Text),
    Column("payload_digest", LargeBinary),
    Column("last_error", Text),
    Column("failure_category", Text),
    Column("failure_code", Text),
    Column("provider", Text),
    Column("idempotency_key", Text),  # the key the provider was given
    Column("provider_message_id", Text),
    Column("evidence", Text),
    _created_at(),
    _at("completed_at"),
    _one_of("route", ("live", "test")),
    _one_of("status", ds.State),
    _one_of("evidence", ds.Evidence),
    _one_of("gate_reason", ds.GateReason),
    _one_of("failure_category", ds.FailureCategory),
    *(check for column in ds.REQUIRED_IN for check in _where_status(column)),
    CheckConstraint("(gate_reason IS NULL) = (send_before > 'epoch')", name="gate"),
    CheckConstraint("(open_provider IS NULL) = (payload_digest IS NULL)", name="open_hand_over"),
    CheckConstraint("(failure_category IS NULL) = (failure_code IS NULL)", name="failure"),
    # A release that knows no routes claims test mail as well; it can hand none over.
    CheckConstraint(
        "(provider = 'simulator') = (route = 'test') AND (open_provider = 'simulator') = (route = 'test')",
        name="provider_on_route",
    ),
    CheckConstraint(
        "lease_token >= 0 AND attempt_count >= 0 AND lost_count >= 0 AND replay_count >= 0", name="counters"
    ),
    Index(
        "ix_outbox_pending_due", "route", "next_attempt_at", "id", postgresql_where=text("status = 'pending'")
    ),
    Index(
        "ix_outbox_unknown_due", "route", "next_attempt_at", "id", postgresql_where=text("status = 'unknown'")
    ),
    # In two parts, so that a finished delivery costs the moves of an unfinished one nothing.
    Index(
        "ix_outbox_unfinished",
        "client_id",
        "status",
        "created_at",
        "verification_id",
        postgresql_where=text("status IN ('pending', 'sending', 'unknown')"),
    ),
    Index(
        "ix_outbox_finished",
        "client_id",
        "status",
        "created_at",
        "verification_id",
        postgresql_where=text("status IN ('accepted', 'failed', 'expired', 'cancelled')"),
    ),
    Index("ix_outbox_leases", "lease_until", "id", postgresql_where=text("status = 'sending'")),
    Index(
        "ix_outbox_provider_message",
        "provider_message_id",
        postgresql_where=text("provider_message_id IS NOT NULL"),
    ),
    Index("ix_outbox_pending_gate", "send_before", "id", postgresql_where=text("status = 'pending'")),
)

delivery_attempts = Table(
    "delivery_attempts",
    metadata,
    Column("delivery_id", ForeignKey("email_outbox.id"), nullable=False),
    Column("lease_token", BigInteger, nullable=False),
    Column("worker", Text, nullable=False),
    Column("provider", Text),  # null: the lease ran out before anything was said
    _at("started_at", nullable=False),
    _at("handed_over_at"),
    _at("finished_at"),
    Column("outcome", Text),
    Column("stale", Boolean, nullable=False, server_default=text("false")),
    Column("response_status", Text),
    Column("error_code", Text),
    Column("provider_message_id", Text),
    Column("correlation_id", Text, nullable=False),
    Column("release", Text),
    PrimaryKeyConstraint("delivery_id", "lease_token"),
    _one_of("outcome", ds.Outcome),
    CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="finished"),
    CheckConstraint("outcome IS NOT NULL OR handed_over_at IS NOT NULL", name="says_something"),
    CheckConstraint(
        "outcome NOT IN ('accepted', 'unknown') OR handed_over_at IS NOT NULL", name="handed_over"
    ),
    CheckConstraint("handed_over_at IS NULL OR provider IS NOT NULL", name="provider"),
    Index("ix_attempts_late", "finished_at", "delivery_id", postgresql_where=text("stale")),
    Index(
        "ix_attempts_provider_message",
        "provider_message_id",
        postgresql_where=text("provider_message_id IS NOT NULL"),
    ),
)

# What operators did to deliveries. The words are a person's: retention may take them, the rest stays.
operator_actions = Table(
    "operator_actions",
    metadata,
    _id(),
    Column("delivery_id", ForeignKey("email_outbox.id"), nullable=False, index=True),
    Column("action", Text, nullable=False),
    Column("operator", Text),
    Column("reason", Text),
    Column("at_stake", Text),  # what the operator was told before
    Column("from_state", Text, nullable=False),
    Column("to_state", Text, nullable=False),
    _created_at("at"),
    _one_of("action", ds.Action),
    _one_of("from_state", ds.State),
    _one_of("to_state", ds.State),
)

provider_events = Table(
    "provider_events",
    metadata,
    _id(),
    Column("provider", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("delivery_id", ForeignKey("email_outbox.id"), index=True),
    Column("kind", Text, nullable=False),
    _at("occurred_at"),
    _created_at("received_at"),
    _at("applied_at"),
    Column("body", JSONB),  # redacted; null once anonymised
    UniqueConstraint("provider", "event_id"),
)

suppressions = Table(
    "suppressions",
    metadata,
    _id(),
    Column("client_id", ForeignKey("clients.id"), nullable=False),
    Column("email_canonical", Text, nullable=False),
    Column("reason", Text, nullable=False),
    _created_at(),
    _at("expires_at"),
    UniqueConstraint("client_id", "email_canonical"),
)

provider_status = Table(
    "provider_status",
    metadata,
    Column("provider", Text, nullable=False),
    Column("sender", Text, nullable=False),
    _at("paused_until", nullable=False),
    Column("kind", Text, nullable=False),
    Column("code", Text, nullable=False),
    _count("refusals"),  # in a row: what the pause's backoff counts
    _created_at("refused_at"),
    PrimaryKeyConstraint("provider", "sender"),
    _one_of("kind", ("away", "config", "operator")),
)

# Leaky buckets: how full each was at an instant. A crash of the database empties them, which is fine for a limit.
rate_limits = Table(
    "rate_limits",
    metadata,
    Column("kind", Text, nullable=False),  # what is limited, and by what
    Column("subject", LargeBinary, nullable=False),  # a keyed digest: no address of a caller is kept
    Column("level", Double, nullable=False),
    _at("at", nullable=False),
    _at("empty_at", nullable=False),  # from then on the row says nothing
    Column("capacity", Double, nullable=False),
    PrimaryKeyConstraint("kind", "subject"),
    # What does not fit is refused by the row itself, and with it the transaction that wanted it.
    CheckConstraint("level <= capacity", name="level"),
    Index("ix_rate_limits_empty", "empty_at"),
    prefixes=["UNLOGGED"],
)

state_changes = Table(
    "state_changes",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("seq", BigInteger),  # given in commit order by one numberer at a time
    _created_at("at"),
    Column("client_id", Uuid, nullable=False),
    Column("verification_id", Uuid, nullable=False, index=True),
    Column("delivery_id", Uuid),  # null: the verification itself changed
    Column("before", Text),  # null: it was created
    Column("after", Text, nullable=False),
    Column("code", Text),  # failure code, or why a gate was closed
    Column("provider", Text),
    Column("evidence", Text),
    Index("ix_state_changes_unnumbered", "id", postgresql_where=text("seq IS NULL")),
    # The only one that knows `seq`: in an index by it alone a planner would look for a client among all the others.
    Index("ix_state_changes_feed", "client_id", "seq", unique=True, postgresql_where=text("seq IS NOT NULL")),
)

change_counter = Table(
    "change_counter",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    Column("seq", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("one", name="one"),
)

sweep_runs = Table(
    "sweep_runs",
    metadata,
    Column("slot", BigInteger, primary_key=True, autoincrement=False),  # floor(epoch / interval)
    Column("worker", Text, nullable=False),
    Column("trigger", Text, nullable=False),
    _created_at("started_at"),
    _at("finished_at"),
    Column("counts", JSONB),
    _one_of("trigger", ("beat", "timer")),
)

delivery_stats = Table(
    "delivery_stats",
    metadata,
    _at("minute", nullable=False),
    Column("name", Text, nullable=False),
    Column("label", Text, nullable=False, server_default=text("''")),
    Column("count", BigInteger, nullable=False, server_default=text("0")),
    Column("total", Double, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("minute", "name", "label"),
)

releases = Table(
    "releases",
    metadata,
    _id(),
    Column("commit", Text, nullable=False),
    Column("schema_before", Text),
    Column("schema_after", Text),
    Column("outcome", Text, nullable=False),
    _created_at("started_at"),
    _at("finished_at"),
    _one_of("outcome", ("running", "done", "failed")),
)
