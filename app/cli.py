"""`flask --app app …`: the commands. They need DATABASE_URL and no other setting, and start fast."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import click
from flask import Flask
from flask.cli import AppGroup

from app.cli_clients import client_commands, key_commands
from app.cli_explain import explain
from app.cli_outbox import outbox_commands
from app.cli_release import release
from app.cli_repair import repair
from app.cli_suppressions import suppression_commands


class _TopLevel(AppGroup):
    """Names of commands. click would quote one that there is not: a key pasted in its place must not end in a log."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = super().get_command(ctx, name)
        if found is None:
            raise click.UsageError("no such command; `flask --app app --help` lists them", ctx)
        return found


class _CommandApp(Flask):
    """The commands. Should it be served (`flask run`), it becomes the whole service."""

    def __init__(self, make_service: Callable[[], Flask]) -> None:
        super().__init__("app", static_folder=None)
        self.cli = _TopLevel("app")
        self._make_service = make_service

    @cached_property
    def _service(self) -> Flask:
        return self._make_service()

    def wsgi_app(self, environ: Any, start_response: Any) -> Any:
        return self._service.wsgi_app(environ, start_response)


def command_app(make_service: Callable[[], Flask]) -> Flask:
    """An application that holds the commands and builds the service only if it is served."""
    app = _CommandApp(make_service)
    groups = client_commands, key_commands, outbox_commands, suppression_commands
    for command in (release, explain, repair, *groups):
        app.cli.add_command(command)
    return app
