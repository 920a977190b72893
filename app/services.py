"""What every request works with: settings, the database, and the way to wake a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from flask import current_app

from app import config
from app.config import WebSettings
from db import config as db_config
from db.config import DatabaseSettings
from db.session import Database, database
from tasks import kicker

_NAME = "countersign"
_CONNECTIONS = 8  # gunicorn's threads a process (Procfile); each request uses one at a time


@dataclass(frozen=True, slots=True)
class Services:
    """One web process's ports; tests bring their own."""

    settings: WebSettings
    database: Database
    database_settings: DatabaseSettings
    kick: Callable[[], None]

    @classmethod
    def from_environment(cls) -> Services:
        """Raises ConfigurationError."""
        read = config.from_environment()
        return cls(read, database(_CONNECTIONS), db_config.settings(), kicker.kick)


def services() -> Services:
    """Those of the running application."""
    return cast(Services, current_app.extensions[_NAME])


EXTENSION = _NAME
