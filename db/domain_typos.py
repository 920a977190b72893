"""`gmial.com` -> `gmail.com`: what domain somebody may have meant. A hint, never a reason to refuse anything. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# Where most of the world's private mailboxes are, the likeliest first: of two equally good guesses the earlier one is made.
_COMMON_TEXT: Final = """
gmail.com yahoo.com hotmail.com outlook.com icloud.com gmx.de web.de t-online.de googlemail.com freenet.de gmx.net
aol.com live.com msn.com me.com mac.com proton.me protonmail.com mail.com ymail.com rocketmail.com yandex.com yandex.ru
hotmail.de outlook.de yahoo.de live.de aol.de gmx.at gmx.ch gmx.com arcor.de posteo.de mailbox.org vodafone.de
kabelmail.de netcologne.de tutanota.com tutanota.de tuta.com tuta.io bluewin.ch chello.at
yahoo.co.uk hotmail.co.uk outlook.co.uk live.co.uk btinternet.com virginmedia.com ntlworld.com talktalk.net
yahoo.fr hotmail.fr outlook.fr live.fr wanadoo.fr laposte.net
yahoo.it hotmail.it outlook.it live.it libero.it tiscali.it yahoo.es hotmail.es outlook.es telefonica.net
ziggo.nl kpnmail.nl hotmail.nl live.nl xs4all.nl telenet.be skynet.be hotmail.be hotmail.se
rambler.ru interia.pl seznam.cz centrum.cz foxmail.com hanmail.net naver.com docomo.ne.jp softbank.ne.jp yahoo.co.jp
yahoo.co.in yahoo.in rediffmail.com yahoo.com.br hotmail.com.br outlook.com.br yahoo.com.mx yahoo.com.ar yahoo.com.au
yahoo.ca sympatico.ca comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net earthlink.net optonline.net
bigpond.com optusnet.com.au fastmail.com zoho.com
"""
_COMMON: Final = tuple(_COMMON_TEXT.split())
# Also common, and never a typing error themselves, but too short or too much of a word to be guessed from others.
_LEFT_ALONE_TEXT: Final = """
email.com email.de email.cz mail.ru mail.de bk.ru inbox.ru list.ru ya.ru ukr.net wp.pl o2.pl onet.pl gazeta.pl qq.com
163.com 126.com sina.com daum.net orange.fr free.fr sfr.fr neuf.fr bbox.fr alice.it tin.it virgilio.it planet.nl home.nl
online.no online.de ewe.net ewetel.net 1und1.de unitybox.de vodafonemail.de aon.at a1.net hispeed.ch telia.com sky.com
hey.com pm.me duck.com uol.com.br bol.com.br terra.com.br rogers.com shaw.ca charter.net hushmail.com gmx.info gmx.eu
"""
_LEFT_ALONE: Final = frozenset(_LEFT_ALONE_TEXT.split())
# Endings that do not exist, and what the fingers meant. Good for any name.
_NOT_COM: Final = "con cmo ocm comm coom cpm vom xom cim ckm cok c0m clm cpom comn"
_NO_ENDINGS: Final = {
    **dict.fromkeys(_NOT_COM.split(), "com"),
    **dict.fromkeys(("ent", "nte", "nett"), "net"),
    **dict.fromkeys(("ogr", "orgg"), "org"),
    **dict.fromkeys(("dee", "dde"), "de"),
}
# Endings that exist, and are a slip only behind a name that is at home elsewhere.
_SLIPS: Final = {
    **_NO_ENDINGS,
    **dict.fromkeys(("co", "cm", "om"), "com"),
    **dict.fromkeys(("ne", "bet"), "net"),
    **dict.fromkeys(("d", "ed", "dw"), "de"),
}

# Further off than the edits allowed, and common enough to be worth a line.
_WELL_KNOWN: Final = {"icould.com": "icloud.com"}
# RFC 2606 and 6761: what ends like this is meant.
_RESERVED_ENDINGS: Final = frozenset(("example", "test", "invalid", "localhost", "local", "internal"))

# How long a name must be to differ by one letter (what is near `gmx` or `aol` is mostly somebody else), and by two.
_SHORTEST: Final = 5
_LONG: Final = 9


def _names_by_ending() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for domain in _COMMON:
        name, _, ending = domain.partition(".")
        names.setdefault(ending, []).append(name)
    return names


_NAMES: Final = _names_by_ending()


@lru_cache(maxsize=4096)
def suggest(domain: str) -> str | None:
    """The domain that was probably meant, or None. `domain` in its ASCII form and lower case."""
    name, _, ending = domain.partition(".")
    rest, _, last = domain.rpartition(".")
    if domain in _COMMON or domain in _LEFT_ALONE or last in _RESERVED_ENDINGS:
        return None
    if name == "gmail":
        return "gmail.com"  # there is one Gmail, whatever the ending
    if domain in _WELL_KNOWN:
        return _WELL_KNOWN[domain]
    # An ending that is right beats one that has to be mended as well.
    for meant in (ending, _SLIPS.get(ending, "")):
        for common in _NAMES.get(meant, ()):
            if _is_near(name, common):
                return f"{common}.{meant}"
    return f"{rest}.{_NO_ENDINGS[last]}" if rest and last in _NO_ENDINGS else None


def _is_near(name: str, common: str) -> bool:
    if name == common or _is_swapped(name, common):
        return True
    if len(common) < _SHORTEST or name[:1] != common[:1]:
        return False  # nobody misses the first letter: `email` and `rmail` are others
    return _within(name, common, 2 if len(common) >= _LONG else 1)


def _is_swapped(name: str, common: str) -> bool:
    """Whether two neighbouring letters changed places, the first one included."""
    if len(name) != len(common):
        return False
    apart = [at for at in range(len(name)) if name[at] != common[at]]
    if len(apart) != 2 or apart[1] != apart[0] + 1:
        return False
    first, second = apart
    return name[first] == common[second] and name[second] == common[first]


def _within(one: str, other: str, edits: int) -> bool:
    """Whether this many insertions, deletions, substitutions and swaps of neighbours lead from one to the other."""
    if abs(len(one) - len(other)) > edits:
        return False
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    one, other = one[same:], other[same:]
    if not edits or not one or not other:
        return max(len(one), len(other)) <= edits
    return (
        _within(one[1:], other[1:], edits - 1)
        or _within(one[1:], other, edits - 1)
        or _within(one, other[1:], edits - 1)
        or (one[:2] == other[1::-1] and _within(one[2:], other[2:], edits - 1))
    )
