"""What can go wrong between the program and its database, as the domain sees it."""

from __future__ import annotations

from uuid import UUID


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
    """The verification was confirmed before; nothing changed now.

    Whoever holds the token could have confirmed it and may learn where that leads: `return_url`, and in which `locale`.
    """

    def __init__(
        self, verification_id: UUID, *, return_url: str | None = None, locale: str | None = None
    ) -> None:
        super().__init__()
        self.verification_id = verification_id
        self.return_url = return_url
        self.locale = locale


class TokenExpired(CountersignError):
    """The verification can no longer be confirmed.

    `reason` is `expired`, `superseded` or `cancelled`; `newer_exists` says whether a newer mail for the same account and
    purpose can still be used; `locale` is that of the request.
    """

    def __init__(self, reason: str, *, newer_exists: bool, locale: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.newer_exists = newer_exists
        self.locale = locale


class NotCancellable(CountersignError):
    """The verification was confirmed: there is nothing left to cancel."""


class OperationRefused(CountersignError):
    """What an operator asked for is not allowed now; the message says why, and what else may help."""


class UnknownTokenKey(CountersignError):
    """The row names a key that TOKEN_KEYS of this process does not hold (a rolling deploy, or a key dropped too soon)."""


class AlreadyVerified(CountersignError):
    """A sign-up for an account that is active with the same address."""


class ResendCooldown(CountersignError):
    """A mail to this address was requested a moment ago, as `verification_id`; another may be in `retry_after` seconds."""

    def __init__(self, verification_id: UUID, retry_after: int) -> None:
        super().__init__(f"another mail may be requested in {retry_after} s")
        self.verification_id = verification_id
        self.retry_after = retry_after


class ClientBacklog(CountersignError):
    """Too many of the client's deliveries are unfinished."""


class RateLimited(CountersignError):
    """More in an hour than `limit` allows; there is room again in `retry_after` seconds."""

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(f"{limit}: again in {retry_after} s")
        self.limit = limit
        self.retry_after = retry_after


class NotHandedOver(CountersignError):
    """No mail with this token has left; one may in `retry_after` seconds, or (None) none ever will."""

    def __init__(self, retry_after: int | None) -> None:
        super().__init__()
        self.retry_after = retry_after


class InvalidKey(CountersignError):
    """Nobody's API key."""


class ClientDisabled(CountersignError):
    """The key is good, but its client was switched off."""
