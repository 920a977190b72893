"""The database of record: schema, state machine, leases, tokens and receipts. Imports nothing of ours."""
