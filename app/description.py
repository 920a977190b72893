"""The API's description (OpenAPI 3.1): what flask-smorest makes of views and schemas, completed by what they leave out.

Nothing here is a second truth: errors come from `app.errors`, shapes from `app.schemas`, limits from the settings, examples
from `app.examples`, which tests execute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from app import errors, examples
from app.errors import MEDIA_TYPE, Problem
from app.field_codes import FIELD_CODES
from app.schemas import (
    METADATA_VALUE,
    CooldownProblemSchema,
    ExpiredProblemSchema,
    InvalidRequestProblemSchema,
    ProblemSchema,
    RateLimitedProblemSchema,
)
from db.config import DatabaseSettings

Json = dict[str, Any]
PROBLEMS = "x-problems"  # of an operation as its view declares it; of the document: the table of all codes
FIELDS = "x-field-codes"

_ABOUT = """E-mail verifications that stay boring under failure.

Bodies are JSON in UTF-8, at most 16 KiB, without duplicate keys, NaN or Infinity. Every answer carries `X-Request-ID`: yours,
if you send a well-formed one, else a new one. Errors are problems (RFC 9457); decide by `code`, which never changes its
meaning. Any path may answer 404 `not_found`, and 405 `method_not_allowed` with `Allow`. HEAD works wherever GET does."""

OPTIONS: Json = {
    "info": {"description": _ABOUT, "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"}},
    "servers": [{"url": "/"}],
    "components": {
        "securitySchemes": {
            "apiKey": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key of yours, `cs_live_…` or `cs_test_…`.",
            }
        },
        "headers": {
            "X-Request-ID": {
                "description": "The request's id, also the correlation id of what it made.",
                "required": True,
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"},
            },
            "Retry-After": {
                "description": "Seconds until another try, or another look, is worth it.",
                "schema": {"type": "integer", "minimum": 0},
            },
            "WWW-Authenticate": {
                "description": "How to authenticate.",
                "required": True,
                "schema": {"type": "string"},
            },
            "Location": {
                "description": "The path of the verification.",
                "required": True,
                "schema": {"type": "string", "pattern": "^/v1/verifications/ver_[0-9a-f]{32}$"},
            },
            "Idempotency-Key": {
                "description": "The key to repeat this request with.",
                "required": True,
                "schema": {"type": "string"},
            },
            "Idempotent-Replayed": {
                "description": "There was such a request before; this is its verification as it stands now.",
                "schema": {"type": "string", "enum": ["true"]},
            },
        },
    },
}

# What any call may answer, whatever it does.
_ALWAYS = ("malformed_body", "body_too_large", "internal_error", "database_unavailable")
_WITH_KEY = ("unauthorized", "client_disabled")
_WITH_BODY = ("malformed_json", "unsupported_media_type", "invalid_request")
_WAITS = frozenset({429, 503})
# Problems with members of their own: their schemas.
_SHAPES: Mapping[str, type[ProblemSchema]] = MappingProxyType(
    {
        "invalid_request": InvalidRequestProblemSchema,
        "verification_expired": ExpiredProblemSchema,
        "resend_cooldown": CooldownProblemSchema,
        "rate_limited": RateLimitedProblemSchema,
    }
)
_IDS = MappingProxyType({"verification_id": "ver", "delivery_id": "dlv"})
_METHODS = ("get", "put", "post", "delete", "patch")


def teach(spec: Any, plugin: Any) -> None:
    """What apispec cannot know of our fields and of schemas that no view names."""
    plugin.converter.add_attribute_function(_describe_field)
    spec.components.schema("MetadataValue", METADATA_VALUE)
    shapes: list[type[ProblemSchema]] = [ProblemSchema, *_SHAPES.values()]
    for schema in shapes:
        spec.components.schema(_name(schema), schema=schema)


def complete(raw: Json, settings: DatabaseSettings) -> Json:
    """The whole document. `raw` is apispec's; it stays as it is."""
    document = deepcopy(raw)
    responses: Json = {}
    for _, _, operation in operations(document):
        _complete_operation(document, operation, responses)
    _name_ids(document)
    components = document["components"]
    components["responses"] = dict(sorted(responses.items()))
    # flask-smorest describes its own pagination, which nothing here uses.
    components["schemas"].pop("PaginationMetadata", None)
    components["schemas"] = dict(sorted(components["schemas"].items()))
    lifetime = components["schemas"]["NewVerification"]["properties"]["expires_in"]
    lifetime["exclusiveMinimum"] = settings.min_token_life
    document[PROBLEMS] = [_row(problem) for problem in errors.by_code().values()]
    document[FIELDS] = [
        {"code": code, "meaning": words.meaning, "remedy": words.remedy}
        for code, words in FIELD_CODES.items()
    ]
    return document


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Path, method and operation of each call."""
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def headers(*names: str) -> Json:
    """For a view's `response`: headers of the components."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def problem_example(problem: Problem) -> Json:
    """What an answer with this problem looks like."""
    return {
        **errors.members(problem, "req_01a22dce57ba71079507443af98a55fb"),
        **examples.MORE.get(problem.code, {}),
    }


def _describe_field(self: Any, field: Any, ret: Json) -> Json:
    """apispec's protocol: more properties of a field. What may be left out has no default of null."""
    if "default" in ret and ret["default"] is None:
        del ret["default"]
    described: Json = getattr(field, "described", {})
    if "format" in ret and "pattern" in described:
        # The format says more, and two rules for one text are more than most programs can follow.
        del ret["pattern"]
        return {}
    return described


def _complete_operation(document: Json, operation: Json, responses: Json) -> None:
    declared = operation.pop(PROBLEMS, {})
    codes = {*_ALWAYS, *declared}
    if "security" in operation:
        codes |= {*_WITH_KEY}
    if "requestBody" in operation:
        codes |= {*_WITH_BODY}
    if any(parameter.get("in") == "query" for parameter in operation.get("parameters", [])):
        codes.add("invalid_request")
    own = {str(status): answer for status, answer in operation["responses"].items() if str(status) < "400"}
    for status, answer in own.items():
        answer.setdefault("headers", {}).update(headers("X-Request-ID"))
        _add_links(document, operation["operationId"], status, answer)
    _add_examples(operation, own)
    operation["responses"] = own | {
        str(status): _refer(status, listed, responses) for status, listed in _by_status(codes)
    }


def _by_status(codes: Iterable[str]) -> Iterator[tuple[int, list[Problem]]]:
    problems = [errors.by_code()[code] for code in sorted(codes)]
    for status in sorted({problem.status for problem in problems}):
        yield status, [problem for problem in problems if problem.status == status]


def _refer(status: int, problems: list[Problem], responses: Json) -> Json:
    """A reference to the one response with exactly these problems."""
    name = ".".join(problem.code for problem in problems)
    responses.setdefault(name, _response(status, problems))
    return {"$ref": f"#/components/responses/{name}"}


def _response(status: int, problems: list[Problem]) -> Json:
    names = {"X-Request-ID", *(name for problem in problems for name in problem.headers)}
    answered = headers(*sorted(names - {"Retry-After"}))
    if status in _WAITS:
        # Here it is always there.
        described = OPTIONS["components"]["headers"]["Retry-After"]
        answered["Retry-After"] = {**described, "required": True}
    return {
        "description": f"{HTTPStatus(status).phrase}: "
        + ", ".join(f"`{problem.code}`" for problem in problems),
        "headers": answered,
        "content": {
            MEDIA_TYPE: {
                "schema": _schema_of(status, problems),
                "examples": {
                    problem.code: {"summary": problem.title, "value": problem_example(problem)}
                    for problem in problems
                },
            }
        },
    }


def _schema_of(status: int, problems: list[Problem]) -> Json:
    shapes: dict[str, list[str]] = {}
    for problem in problems:
        shapes.setdefault(_name(_SHAPES.get(problem.code, ProblemSchema)), []).append(problem.code)
    schemas = [
        {
            "$ref": f"#/components/schemas/{shape}",
            "properties": {"status": {"const": status}, "code": {"enum": codes}},
        }
        for shape, codes in shapes.items()
    ]
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}


def _add_examples(operation: Json, answers: Json) -> None:
    name = operation["operationId"]
    if "requestBody" in operation and name in examples.REQUESTS:
        operation["requestBody"]["content"]["application/json"]["examples"] = {
            key: {"summary": example.summary, "value": example.value}
            for key, example in examples.REQUESTS[name].items()
        }
    for answer in answers.values():
        if "application/json" in answer.get("content", {}) and name in examples.ANSWERS:
            answer["content"]["application/json"]["example"] = examples.ANSWERS[name]


def _add_links(document: Json, source: str, status: str, answer: Json) -> None:
    """Where the values of an answer lead, for programs that explore."""
    there = {operation["operationId"]: operation for _, _, operation in operations(document)}
    for target, parameters in examples.LINKS.get(source, {}).items():
        if target in there:
            description = there[target].get("summary", "")
            answer.setdefault("links", {})[target] = {
                "operationId": target,
                "description": description,
                **parameters,
            }


def _name_ids(document: Json) -> None:
    """Path parameters that are public ids."""
    for item in document["paths"].values():
        for parameter in item.get("parameters", []):
            if parameter.get("in") == "path" and parameter["name"] in _IDS:
                kind = _IDS[parameter["name"]]
                parameter["schema"] = {"type": "string", "pattern": f"^{kind}_[0-9a-f]{{32}}$"}
                parameter["example"] = examples.IDS[parameter["name"]]
                parameter["description"] = f"As an answer gave it: `{kind}_` and 32 hex digits."


def _row(problem: Problem) -> Json:
    return {
        "code": problem.code,
        "status": problem.status,
        "title": problem.title,
        "detail": problem.detail,
    }


def _name(schema: type[ProblemSchema]) -> str:
    return schema.__name__.removesuffix("Schema")
