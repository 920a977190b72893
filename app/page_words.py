"""The words of `/verify` in each language, and which language a person gets.

Every language has every message (tested), so that a page never falls back in the middle of a sentence. The button's name
is quoted by the mail (`tasks.templates`): both must say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from types import MappingProxyType


class Language(StrEnum):
    """What the page speaks."""

    EN = "en"
    DE = "de"


class Case(StrEnum):
    """What the page has to say. Those with REVOKE answer the button "I did not ask for this"."""

    ASK = auto()
    CONFIRMED = auto()
    USED = auto()
    USED_REVOKE = auto()
    REVOKED = auto()
    EXPIRED = auto()
    SUPERSEDED = auto()
    CANCELLED = auto()
    OVER_REVOKE = auto()
    NEWER = auto()
    NEWER_REVOKE = auto()
    INVALID = auto()
    UNREADABLE = auto()
    RATE_LIMITED = auto()
    UNAVAILABLE = auto()
    BROKEN = auto()


@dataclass(frozen=True, slots=True)
class Message:
    """What happened, and what to do. `{address}` is masked, `{minutes}` a number; `{revoke}` is the button's name."""

    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """One language's."""

    label: str
    hint: str
    confirm: str
    revoke: str
    onward: str
    messages: Mapping[Case, Message]


_EN = Words(
    label="Code from the mail",
    hint="16 letters and digits. Capitals, spaces and hyphens do not matter.",
    confirm="Confirm my address",
    revoke="I did not ask for this",
    onward="Continue",
    messages=MappingProxyType(
        {
            Case.ASK: Message(
                "Confirm your email address",
                ("Press the button to confirm. If the field is empty, type the code from the mail.",),
            ),
            Case.CONFIRMED: Message(
                "Your address is confirmed",
                ("Thank you. {address} is confirmed, and there is nothing left to do here.",),
            ),
            Case.USED: Message(
                "This address is already confirmed",
                ("It was confirmed before with this code, and there is nothing left to do here.",),
            ),
            Case.USED_REVOKE: Message(
                "This was confirmed before",
                (
                    "The address is confirmed already, so the request cannot be cancelled here any more.",
                    (
                        "If it was not you who confirmed it, tell the service that the mail names, and change the password "
                        "of your mailbox: somebody else may be reading it."
                    ),
                ),
            ),
            Case.REVOKED: Message(
                "This request was cancelled",
                (
                    "The link and the code in that mail no longer work, and nothing was confirmed.",
                    "You need not do anything else.",
                ),
            ),
            Case.EXPIRED: Message(
                "This link has run out",
                (
                    "It worked for a limited time only, and nothing was confirmed.",
                    "To get a new one, ask again where you entered your address.",
                ),
            ),
            Case.SUPERSEDED: Message(
                "This link was replaced",
                (
                    "Only the newest mail works; if you used that one, there is nothing left to do.",
                    "Otherwise ask again where you entered your address, and you get a new one.",
                ),
            ),
            Case.CANCELLED: Message(
                "This request was cancelled",
                (
                    "Its link and code no longer work, and nothing was confirmed.",
                    "If you still want to confirm your address, ask again where you entered it.",
                ),
            ),
            Case.OVER_REVOKE: Message(
                "There is nothing left to cancel",
                ("This link no longer works, and it confirmed nothing.", "You need not do anything else."),
            ),
            Case.NEWER: Message(
                "There is a newer mail",
                (
                    "Another mail was sent after this one, and only the newest works.",
                    "Look for it, in the spam folder too, and use its link or type its code here.",
                ),
            ),
            Case.NEWER_REVOKE: Message(
                "There is a newer mail",
                (
                    "This link no longer works, but another mail was sent after it.",
                    "If you did not ask for that one either, open its link and press “{revoke}” there.",
                ),
            ),
            Case.INVALID: Message(
                "This code is not valid",
                (
                    "Nothing was changed. Compare the code with the one in the mail, or open the mail's link again.",
                    "If the mail is an old one, ask for a new one where you entered your address.",
                ),
            ),
            Case.UNREADABLE: Message(
                "This could not be read",
                (
                    "What your browser sent did not arrive whole, or not as this page sends it. Nothing was changed.",
                    "Type the code from the mail, then press one of the buttons.",
                ),
            ),
            Case.RATE_LIMITED: Message(
                "Too many tries",
                (
                    "There were too many tries from your network. Nothing was changed.",
                    "Wait {minutes} min., then press the button again.",
                ),
            ),
            Case.UNAVAILABLE: Message(
                "This is not possible right now",
                ("Nothing is lost, and it is not your fault. Wait a minute, then press the button again.",),
            ),
            Case.BROKEN: Message(
                "Something went wrong here",
                ("It has been recorded, and nothing is lost. Wait a minute, then press the button again.",),
            ),
        }
    ),
)

_DE = Words(
    label="Code aus der Mail",
    hint="16 Buchstaben und Ziffern. Großschreibung, Leerzeichen und Bindestriche spielen keine Rolle.",
    confirm="Adresse bestätigen",
    revoke="Ich habe das nicht angefordert",
    onward="Weiter",
    messages=MappingProxyType(
        {
            Case.ASK: Message(
                "E-Mail-Adresse bestätigen",
                (
                    "Drücken Sie zum Bestätigen auf den Knopf. Wenn das Feld leer ist, geben Sie den Code aus der Mail ein.",
                ),
            ),
            Case.CONFIRMED: Message(
                "Ihre Adresse ist bestätigt",
                ("Vielen Dank. {address} ist bestätigt, hier ist nichts weiter zu tun.",),
            ),
            Case.USED: Message(
                "Diese Adresse ist schon bestätigt",
                ("Sie wurde bereits mit diesem Code bestätigt, hier ist nichts weiter zu tun.",),
            ),
            Case.USED_REVOKE: Message(
                "Das wurde schon bestätigt",
                (
                    "Die Adresse ist bereits bestätigt; die Anfrage lässt sich hier nicht mehr zurücknehmen.",
                    (
                        "Wenn nicht Sie sie bestätigt haben, sagen Sie es dem Dienst, den die Mail nennt, und ändern Sie das "
                        "Passwort Ihres Postfachs: Vielleicht liest jemand anders mit."
                    ),
                ),
            ),
            Case.REVOKED: Message(
                "Die Anfrage ist zurückgenommen",
                (
                    "Link und Code aus dieser Mail gelten nicht mehr, und nichts wurde bestätigt.",
                    "Sie müssen nichts weiter tun.",
                ),
            ),
            Case.EXPIRED: Message(
                "Dieser Link ist abgelaufen",
                (
                    "Er galt nur eine begrenzte Zeit, und nichts wurde bestätigt.",
                    "Einen neuen bekommen Sie dort, wo Sie Ihre Adresse eingegeben haben.",
                ),
            ),
            Case.SUPERSEDED: Message(
                "Dieser Link wurde ersetzt",
                (
                    "Nur die neueste Mail gilt; wenn Sie die schon benutzt haben, ist nichts weiter zu tun.",
                    "Sonst bekommen Sie eine neue dort, wo Sie Ihre Adresse eingegeben haben.",
                ),
            ),
            Case.CANCELLED: Message(
                "Die Anfrage wurde zurückgenommen",
                (
                    "Ihr Link und ihr Code gelten nicht mehr, und nichts wurde bestätigt.",
                    "Wenn Sie Ihre Adresse noch bestätigen wollen, fragen Sie dort neu an, wo Sie sie eingegeben haben.",
                ),
            ),
            Case.OVER_REVOKE: Message(
                "Hier ist nichts mehr zurückzunehmen",
                (
                    "Dieser Link gilt nicht mehr, und er hat nichts bestätigt.",
                    "Sie müssen nichts weiter tun.",
                ),
            ),
            Case.NEWER: Message(
                "Es gibt eine neuere Mail",
                (
                    "Nach dieser Mail ging noch eine an Sie, und nur die neueste gilt.",
                    "Suchen Sie sie, auch im Spam-Ordner; öffnen Sie ihren Link oder geben Sie ihren Code hier ein.",
                ),
            ),
            Case.NEWER_REVOKE: Message(
                "Es gibt eine neuere Mail",
                (
                    "Dieser Link gilt nicht mehr, aber nach ihm ging noch eine Mail an Sie.",
                    "Wenn Sie auch die nicht angefordert haben, öffnen Sie deren Link und drücken dort auf „{revoke}“.",
                ),
            ),
            Case.INVALID: Message(
                "Dieser Code ist nicht gültig",
                (
                    (
                        "Nichts wurde geändert. Vergleichen Sie den Code mit dem in der Mail, oder öffnen Sie "
                        "deren Link noch einmal."
                    ),
                    "Wenn die Mail schon alt ist, fragen Sie dort neu an, wo Sie Ihre Adresse eingegeben haben.",
                ),
            ),
            Case.UNREADABLE: Message(
                "Das war nicht lesbar",
                (
                    (
                        "Was Ihr Browser geschickt hat, kam nicht vollständig an, oder nicht so, wie diese Seite es schickt. "
                        "Nichts wurde geändert."
                    ),
                    "Geben Sie den Code aus der Mail ein, und drücken Sie auf einen der Knöpfe.",
                ),
            ),
            Case.RATE_LIMITED: Message(
                "Zu viele Versuche",
                (
                    "Aus Ihrem Netz kamen zu viele Versuche. Nichts wurde geändert.",
                    "Warten Sie {minutes} Min., und drücken Sie dann noch einmal auf den Knopf.",
                ),
            ),
            Case.UNAVAILABLE: Message(
                "Das geht gerade nicht",
                (
                    (
                        "Nichts ist verloren, und es liegt nicht an Ihnen. Warten Sie eine Minute, und drücken Sie dann noch "
                        "einmal auf den Knopf."
                    ),
                ),
            ),
            Case.BROKEN: Message(
                "Hier ist etwas schiefgegangen",
                (
                    (
                        "Der Fehler ist festgehalten, und nichts ist verloren. Warten Sie eine Minute, und drücken Sie dann "
                        "noch einmal auf den Knopf."
                    ),
                ),
            ),
        }
    ),
)

WORDS: Mapping[Language, Words] = MappingProxyType({Language.EN: _EN, Language.DE: _DE})


def choose(locale: str | None, accepted: Iterable[tuple[str, float]]) -> Language:
    """The language of the request that asked for the mail, else the best of the browser's, else English.

    `accepted`: language tags with their qualities, best first; quality 0 means "not this".
    """
    wished = [locale or "", *(tag for tag, quality in accepted if quality > 0)]
    return next(filter(None, map(_language, wished)), Language.EN)


def _language(tag: str) -> Language | None:
    """`de-AT` and `de_CH.UTF-8` read German."""
    primary = re.split(r"[-_.]", tag, maxsplit=1)[0].lower()
    return next((language for language in Language if language == primary), None)
