"""flask-smorest, with our reader and our errors: bodies are read strictly, every error is a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NoReturn, cast

import flask_smorest
from flask import Request
from marshmallow import Schema, ValidationError
from webargs.flaskparser import FlaskParser

from app import strict_json
from app.errors import MEDIA_TYPE, InvalidRequest
from app.schemas import ProblemSchema, field_errors

View = Callable[..., Any]
Decorator = Callable[[View], View]

OPENAPI = {
    "API_TITLE": "Countersign",
    "API_VERSION": "1",
    "OPENAPI_VERSION": "3.1.0",
    "OPENAPI_URL_PREFIX": "/",
    "OPENAPI_JSON_PATH": "openapi.json",
    "API_SPEC_OPTIONS": {
        "info": {"description": "E-mail verifications that stay boring under failure."},
        "components": {"securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}}},
    },
}


class StrictParser(FlaskParser):
    """Reads bodies by `app.strict_json`; what does not fit the schema is an InvalidRequest."""

    def load_json(self, req: Request, schema: Schema) -> Any:
        return strict_json.read(req)

    def handle_error(
        self,
        error: ValidationError,
        req: Request,
        schema: Schema,
        *,
        error_status_code: int | None,
        error_headers: Mapping[str, str] | None,
    ) -> NoReturn:
        messages: Any = error.messages
        raise InvalidRequest(field_errors(messages["json"]))


class Blueprint(flask_smorest.Blueprint):  # type: ignore[misc]
    """A resource of the API. The library has no types; its decorators get theirs here."""

    ARGUMENTS_PARSER = StrictParser()

    def route(self, rule: str, **options: Any) -> Decorator:
        return cast(Decorator, super().route(rule, **options))

    @staticmethod
    def doc(**values: Any) -> Decorator:
        return cast(Decorator, flask_smorest.Blueprint.doc(**values))

    def arguments(self, schema: type[Schema], **options: Any) -> Decorator:
        return cast(Decorator, super().arguments(schema, **options))

    def response(self, status: int, schema: type[Schema], **options: Any) -> Decorator:
        return cast(Decorator, super().response(status, schema, **options))

    def problems(self, *statuses: HTTPStatus) -> Decorator:
        """The error answers that a call may give, for its description."""

        def decorate(view: View) -> View:
            for status in statuses:
                view = super(Blueprint, self).alt_response(status, status.name)(view)
            return view

        return decorate


class Api(flask_smorest.Api):  # type: ignore[misc]
    """The API's description; errors are `app.errors`' business."""

    ERROR_SCHEMA = ProblemSchema

    def _register_error_handlers(self) -> None:
        """None of its own."""

    def _register_responses(self) -> None:
        super()._register_responses()
        for response in self.spec.components.responses_lazy.values():
            content = response.get("content", {})
            if "application/json" in content:
                content[MEDIA_TYPE] = content.pop("application/json")
