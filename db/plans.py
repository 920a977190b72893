"""For pages that one index serves in its order: the planner is held to it, whatever it believes.

Without statistics, or with stale ones, it takes a client's rows for few, fetches all of them, and sorts.
"""

from __future__ import annotations

from db.session import Tx

_ONLY_INDEXES = """
SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)
"""


def follow_indexes(tx: Tx) -> None:
    """Until the transaction ends. Costs no round trip.

    Where there is no other way, a plan may still sort; before PostgreSQL 18 it then counts as so dear that it would be
    compiled first.
    """
    tx.execute(_ONLY_INDEXES)
