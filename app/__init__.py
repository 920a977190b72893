"""The web process: `gunicorn 'app:create_app()'`, and the commands: `flask --app app …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask import Flask

    from app.services import Services


def create_app(services: Services | None = None) -> Flask:
    """The whole HTTP service, from the environment unless `services` are given. Raises ConfigurationError."""
    from app import web  # noqa: PLC0415 (commands start without it)

    return web.build(services)


def __getattr__(name: str) -> Any:
    """`flask --app app` takes a module's `application` before its factory: the commands need no settings of serving."""
    if name == "application":
        from app import cli  # noqa: PLC0415

        return cli.command_app(create_app)
    raise AttributeError(name)
