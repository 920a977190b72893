"""flask-smorest, with our reader and our errors: bodies are read strictly, every error is a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NoReturn, cast

import flask_smorest
from flask import Request, Response, current_app, json
from marshmallow import Schema, ValidationError
from webargs.flaskparser import FlaskParser

from app import description, query, strict_json
from app.errors import PROBLEMS, InvalidRequest
from app.schemas import field_errors
from app.services import services

View = Callable[..., Any]
Decorator = Callable[[View], View]

OPENAPI = {
    "API_TITLE": "Countersign",
    "API_VERSION": "1",
    "OPENAPI_VERSION": "3.1.0",
    "OPENAPI_URL_PREFIX": "/",
    "OPENAPI_JSON_PATH": "openapi.json",
    "API_SPEC_OPTIONS": description.OPTIONS,
}


class StrictParser(FlaskParser):
    """Reads bodies by `app.strict_json`, query strings by `app.query`; what does not fit its schema is an InvalidRequest."""

    # The schema says what becomes of unknown parameters: nobody's typing error is a filter less.
    DEFAULT_UNKNOWN_BY_LOCATION = {  # noqa: RUF012 (webargs declares it so)
        **FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION,
        "query": None,
    }

    def load_json(self, req: Request, schema: Schema) -> Any:
        if getattr(schema, "may_be_absent", False) and not req.get_data():
            return {}
        return strict_json.read(req)

    def load_querystring(self, req: Request, schema: Schema) -> Any:
        return query.read(req)

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
        if "query" in messages:
            raise InvalidRequest(field_errors(messages["query"], query.pointer_to))
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

    def also_text(self, status: int, example: str) -> Decorator:
        """The same answer as plain text."""
        text = {"schema": {"type": "string"}, "content_type": "text/plain", "example": example}
        return cast(Decorator, super().alt_response(status, **text))

    def problems(self, *kinds: type[Exception]) -> Decorator:
        """The errors of its own that a call may answer; `app.description` adds those that any call may."""
        return self.doc(**{description.PROBLEMS: {PROBLEMS[kind].code: {} for kind in kinds}})

    def _store_endpoint_docs(
        self, endpoint: str, obj: Any, parameters: Any, tags: Any, **options: Any
    ) -> None:
        super()._store_endpoint_docs(endpoint, obj, parameters, tags, **options)
        for method, doc in self._docs[endpoint].items():
            if method != "parameters":
                doc.setdefault("manual_doc", {}).setdefault("operationId", f"{self.name}_{endpoint}")


class Api(flask_smorest.Api):  # type: ignore[misc]
    """The API's description; errors are `app.errors`' business."""

    @cached_property
    def description(self) -> dict[str, Any]:
        """The OpenAPI document of everything that is registered, once the application runs."""
        return description.complete(self.spec.to_dict(), services().database_settings)

    def _init_spec(self, **options: Any) -> None:
        super()._init_spec(**options)
        description.teach(self.spec, self.ma_plugin)

    def _openapi_json(self) -> Response:
        text = json.dumps(self.description, sort_keys=False)
        return current_app.response_class(text, mimetype="application/json")

    def _register_error_handlers(self) -> None:
        """None of its own."""

    def _register_responses(self) -> None:
        """None of its own: `app.description` writes each with the codes that it can have."""
