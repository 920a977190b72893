"""docs/test-keys.md lists the simulator's addresses, all of them."""

from __future__ import annotations

import re

from tasks.providers.simulator import FATES
from tests.unit.test_config import ROOT


def test_every_address_is_in_the_documentation_and_no_other() -> None:
    text = (ROOT / "docs/test-keys.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z]+)@` \|", text, re.M)) == FATES
