"""Reading `MAIL_URL`: one or more accounts, comma-separated, in order of preference.

Every problem is a ValueError whose sentence names MAIL_URL and the entry's place, and never quotes it: a
password is in there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

# A comma separates entries only where a scheme follows, so that one in a password does no harm.
_SEPARATOR = re.compile(r"\s*,\s*(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9./_-]{1,64}")


@dataclass(slots=True)
class AccountUrl:
    """One entry of MAIL_URL, taken apart. Adapters take the options they know; one left over is an error."""

    place: int  # counted from 1, for messages
    scheme: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    host: str = field(repr=False)  # in its own letter case: for some providers it is a key
    port: int | None
    options: dict[str, str] = field(repr=False)

    def problem(self, sentence: str) -> ValueError:
        """A ValueError that says where."""
        return ValueError(f"MAIL_URL: entry {self.place} ({self.scheme}): {sentence}")

    def take(self, option: str, default: str | None = None) -> str | None:
        """An option's value, no longer left over."""
        return self.options.pop(option, default)

    def account_name(self, kind: str, default_label: str) -> str:
        """`kind/label`, the name that rows, metrics and logs know the account by."""
        label = self.take("label") or default_label
        name = f"{kind}/{label.lower()}"
        if not _NAME.fullmatch(name):
            raise self.problem("give it a short ?label= of letters, digits, dots and hyphens")
        return name


def accounts(mail_url: str) -> list[AccountUrl]:
    """Take MAIL_URL apart."""
    entries = _SEPARATOR.split(mail_url.strip())
    if entries == [""]:
        raise ValueError("MAIL_URL is empty; write smtp://user:password@mail.example.com:587")
    return [_account(place, entry.strip()) for place, entry in enumerate(entries, start=1)]


def _account(place: int, entry: str) -> AccountUrl:
    scheme, separator, _ = entry.partition("://")
    account = AccountUrl(place, scheme.lower(), "", "", "", None, {})
    if not separator or not re.fullmatch(r"[a-z][a-z0-9+.-]*", account.scheme):
        account.scheme = "?"
        raise account.problem("it is not of the form scheme://user:password@host:port")
    if any(ord(char) <= 0x20 or ord(char) == 0x7F for char in entry):
        raise account.problem("it holds white space or a control character")
    try:
        parts = urlsplit(entry)
        account.port = parts.port
    except ValueError:  # its text quotes what it could not read, which may be a piece of the password
        raise account.problem(
            "host and port cannot be read; write / : @ ? # % in user or password as %2F %3A %40 %3F %23 %25"
        ) from None
    if parts.path not in {"", "/"} or parts.fragment:
        raise account.problem("only options may follow the host; write / ? # in a password as %2F %3F %23")
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    account.user, account.password = unquote(user), unquote(password)
    account.host = _host(parts.netloc.rpartition("@")[2])
    account.options = _options(account, parts.query)
    return account


def _host(host_and_port: str) -> str:
    if host_and_port.startswith("["):  # an IPv6 address
        return host_and_port[1:].partition("]")[0]
    return host_and_port.partition(":")[0]


def _options(account: AccountUrl, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise account.problem("an option is given twice")
    return options
