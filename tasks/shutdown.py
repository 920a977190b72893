"""Whether this process was told to stop: a plain attribute, because a signal handler sets it."""

from __future__ import annotations


class Shutdown:
    """`requested` goes from False to True once; slots look at it before each claim and each hand-over."""

    requested: bool = False


SHUTDOWN = Shutdown()
