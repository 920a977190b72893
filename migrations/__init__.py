"""Schema history (alembic). Expand/contract: the release before runs on the schema after."""
