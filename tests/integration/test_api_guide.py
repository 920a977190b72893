"""The commands in docs/api.md work as they stand, in the order in which they stand."""

from __future__ import annotations

import re

from db.session import Database
from tests.support import curl
from tests.support.api import make_api
from tests.unit.test_config import ROOT

GUIDE = (ROOT / "docs/api.md").read_text(encoding="utf-8")


def test_the_commands_of_the_guide_work(database: Database) -> None:
    api = make_api(database)
    variables = {"API_KEY": api.owner.key}
    answers = []
    for command in re.findall(r"^```sh\n(curl .*?)```", GUIDE, re.M | re.S):
        answers.append(curl.run(api.http, command, variables))
        if len(answers) == 1:
            variables["VERIFICATION_ID"] = answers[0].get_json()["verification_id"]
            variables["TOKEN"] = api.token(variables["VERIFICATION_ID"])
    seen = [(answer.status_code, answer.mimetype) for answer in answers]
    json, problem = "application/json", "application/problem+json"
    # Asked for, looked at, confirmed, listed; then there is nothing left to cancel; and the receipt.
    assert seen == [(202, json), (200, json), (200, json), (200, json), (409, problem), (200, "text/plain")]
