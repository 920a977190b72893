"""Puts the HTTP service together."""

from __future__ import annotations

from typing import Any, cast

from flask import Flask, request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.middleware.proxy_fix import ProxyFix

from app import errors, health, pages, request_log, tokens, verifications
from app.api import OPENAPI, Api
from app.services import EXTENSION, Services
from db import logs
from db.config import log_format

_LARGEST_BODY = 16 * 1024


def build(services: Services | None = None) -> Flask:
    """The service on `services`, by default those of the environment (whose logs it configures, too)."""
    if services is None:
        logs.configure(log_format())
        services = Services.from_environment()
    app = Flask("app", static_folder=None)
    app.extensions[EXTENSION] = services
    app.config.update(
        SECRET_KEY=services.settings.secret_key,
        MAX_CONTENT_LENGTH=_LARGEST_BODY
        + 1,  # one more, so that a body cut off there is known to be too large
        MAX_FORM_MEMORY_SIZE=_LARGEST_BODY,
        MAX_FORM_PARTS=20,
        **OPENAPI,
    )
    cast(Any, app.json).sort_keys = False
    app.url_map.strict_slashes = False
    request_log.register(app)
    app.before_request(_refuse_large_body)
    errors.register(app)
    api = Api(app)
    api.register_blueprint(verifications.blueprint)
    api.register_blueprint(tokens.blueprint)
    app.register_blueprint(health.blueprint)
    app.register_blueprint(pages.blueprint)
    if services.settings.trusted_proxies:
        # Exactly so many, counted from our side; the host is never taken from a header.
        cast(Any, app).wsgi_app = ProxyFix(
            app.wsgi_app,
            x_for=services.settings.trusted_proxies,
            x_proto=services.settings.trusted_proxies,
            x_host=0,
        )
    return app


def _refuse_large_body() -> None:
    """A chunked body tells no length: werkzeug reads up to its limit and drops the rest silently."""
    length = request.content_length
    if length is None:
        length = len(request.get_data())
    if length > _LARGEST_BODY:
        raise RequestEntityTooLarge
