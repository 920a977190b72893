"""What can go wrong between the program and its database, as the domain sees it."""

from __future__ import annotations


class CountersignError(Exception):
    """Root of every error this package raises."""


class ConfigurationError(CountersignError):
    """A setting is missing or makes no sense; the message names the variable and says what to do."""


class DatabaseUnavailable(CountersignError):
    """The database did not answer, or refused; nothing was committed."""


class CommitUnknown(DatabaseUnavailable):
    """The answer to a COMMIT was lost: it may have happened. Read before you repeat."""


class NotFound(CountersignError):
    """No such thing, or not this client's."""


class NameTaken(CountersignError):
    """A client of that name exists."""


class IdempotencyKeyConflict(CountersignError):
    """The key was used before, with another body."""


class TokenInvalid(CountersignError):
    """No verification has this token, or never will again."""


class TokenAlreadyUsed(CountersignError):
    """The verification was confirmed before; nothing changed now."""


class TokenExpired(CountersignError):
    """The verification can no longer be confirmed.

    `reason` is `expired`, `superseded` or `cancelled`; `newer_exists` says whether a newer mail for the same account and
    purpose can still be used.
    """

    def __init__(self, reason: str, *, newer_exists: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.newer_exists = newer_exists


class NotCancellable(CountersignError):
    """The verification was confirmed: there is nothing left to cancel."""


class UnknownTokenKey(CountersignError):
    """The row names a key that TOKEN_KEYS of this process does not hold (a rolling deploy, or a key dropped too soon)."""


class AlreadyVerified(CountersignError):
    """A sign-up for an account that is active with the same address."""


class ClientDisabled(CountersignError):
    """The key is good, but its client was switched off."""
