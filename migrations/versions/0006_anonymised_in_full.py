"""A verification that was anonymised keeps no text of its request either.

Revision: 0006
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_check_constraint(
        "anonymised_in_full",
        "verifications",
        "anonymised_at IS NULL OR (metadata IS NULL AND return_url IS NULL)",
    )


def downgrade() -> None:
    op.drop_constraint("anonymised_in_full", "verifications", type_="check")
