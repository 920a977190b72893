"""Whoever tries tokens that do not exist may do so only so often: one place for every way in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app import callers
from app.services import services
from db import limits
from db.errors import TokenInvalid
from db.limits import Bucket


@contextmanager
def limited() -> Iterator[None]:
    """Around one try. Only unknown tokens count; a caller whose hour is used up is refused whatever it tries.

    Raises RateLimited, DatabaseUnavailable.
    """
    with_services = services()
    bucket = Bucket("consume_by_caller", callers.digest(), with_services.settings.consume_limit)
    limits.refuse_if_full(with_services.database, bucket)
    try:
        yield
    except TokenInvalid:
        limits.record(with_services.database, bucket)
        raise
