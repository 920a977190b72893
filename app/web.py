"""Puts the HTTP service together."""

from __future__ import annotations

from typing import Any, cast

from flask import Flask, Response, request
from werkzeug.middleware.proxy_fix import ProxyFix

from app import (
    branding,
    cancellations,
    changes,
    docs_page,
    errors,
    health,
    listing,
    pages,
    request_log,
    test_tokens,
    tokens,
    verifications,
)
from app.api import OPENAPI, Api
from app.body import LARGEST, WholeBodyRequest
from app.services import EXTENSION, Services
from db import logs
from db.config import log_format


def build(services: Services | None = None) -> Flask:
    """The service on `services`, by default those of the environment (whose logs it configures, too)."""
    if services is None:
        logs.configure(log_format())
        services = Services.from_environment()
    app = Flask("app", static_folder=None)
    app.request_class = WholeBodyRequest
    app.extensions[EXTENSION] = services
    app.config.update(
        SECRET_KEY=services.settings.secret_key,
        MAX_FORM_MEMORY_SIZE=LARGEST,
        MAX_FORM_PARTS=20,
        **OPENAPI,
    )
    cast(Any, app.json).sort_keys = False
    # Each of these would answer with a redirect to wherever the Host header says.
    app.url_map.strict_slashes = app.url_map.merge_slashes = app.url_map.redirect_defaults = False
    request_log.register(app)
    app.before_request(_refuse_by_headers)
    app.after_request(_guard)
    errors.register(app)
    api = Api(app)
    api.register_blueprint(verifications.blueprint)
    api.register_blueprint(listing.blueprint)
    api.register_blueprint(cancellations.blueprint)
    api.register_blueprint(changes.blueprint)
    api.register_blueprint(test_tokens.blueprint)
    api.register_blueprint(tokens.blueprint)
    api.register_blueprint(branding.blueprint)
    app.register_blueprint(docs_page.blueprint)
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


def _refuse_by_headers() -> None:
    """Whether or not anybody would read the body."""
    cast(WholeBodyRequest, request).refuse_by_headers()


def _guard(response: Response) -> Response:
    """No cache keeps an answer of ours, no browser guesses what it is."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.endpoint == "verifications.receipt":
        response.vary.add("Accept")
    return response
