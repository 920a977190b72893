"""Every call of the service, from its routing table: tests that go over it meet a new call as well."""

from __future__ import annotations

from functools import cache

from flask import Flask

from app import create_app
from app.services import Services
from tests.support.api import SETTINGS
from tests.support.courier import DATABASE_SETTINGS

NOBODY = "ver_" + "0" * 32


@cache
def calls() -> list[tuple[str, str]]:
    """Method and rule of each."""
    app: Flask = create_app(Services(SETTINGS, None, DATABASE_SETTINGS, lambda: None))  # type: ignore[arg-type]
    rules = [
        (rule.rule, method) for rule in app.url_map.iter_rules() for method in sorted(rule.methods or ())
    ]
    return sorted({(method, rule) for rule, method in rules if method not in {"HEAD", "OPTIONS"}})


def path_of(rule: str, instead: str = NOBODY) -> str:
    """A path that matches the rule, with `instead` for what it leaves open."""
    return "/".join(instead if step.startswith("<") else step for step in rule.split("/"))
