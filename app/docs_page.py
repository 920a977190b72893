"""`/docs`: the API's description as a page for people. One document, no script, nothing of a third party."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flask import Blueprint, Response, current_app, render_template
from markupsafe import Markup

from app import description, page_headers
from app.docs_words import commands, kind, ticked, written
from app.errors import MEDIA_TYPE

Json = dict[str, Any]
Field = tuple[str, Markup, str, str]
blueprint = Blueprint("docs", __name__)

_STYLE = (Path(__file__).parent / "templates" / "docs.css").read_text(encoding="utf-8").strip()
_HEADERS = MappingProxyType(page_headers.for_page(style=_STYLE))
_NAME = "countersign.docs"
_SHORT = 30  # lines of an example that everybody sees; a longer one is folded


@blueprint.get("/docs")
def page() -> Response:
    """The whole of it, made once: nobody needs a key to ask for it."""
    kept = current_app.extensions
    if _NAME not in kept:
        kept[_NAME] = _render(_described())
    return Response(kept[_NAME], mimetype="text/html", headers=dict(_HEADERS))


def _render(document: Json) -> str:
    operations = [_operation(document, *call) for call in _in_order(document)]
    return render_template(
        "docs.html",
        style=_STYLE,
        info=document["info"],
        operations=operations,
        schemas=[
            (name, schema.get("description", ""), _fields(schema))
            for name, schema in document["components"]["schemas"].items()
        ],
        problems=_problems(document, operations),
        field_codes=document[description.FIELDS],
        ticked=ticked,
    )


def _in_order(document: Json) -> list[tuple[str, str, Json]]:
    """All calls; of one path that which makes something first."""
    paths = list(document["paths"])
    calls = list(description.operations(document))
    return sorted(calls, key=lambda call: (paths.index(call[0]), call[1] != "post"))


def _described() -> Json:
    """The running service's description."""
    api = current_app.extensions["flask-smorest"]["apis"][""]["ext_obj"]
    found: Json = api.description
    return found


def _problems(document: Json, operations: list[Json]) -> list[Json]:
    """Every code, with an example and the calls that may answer it, by status."""
    answers = document["components"]["responses"].values()
    examples = {
        code: written(example["value"])
        for answer in answers
        for code, example in answer["content"][MEDIA_TYPE]["examples"].items()
    }
    by_code = {
        code: [call for call in operations if code in call["codes"]]
        for code in (row["code"] for row in document[description.PROBLEMS])
    }
    rows = sorted(document[description.PROBLEMS], key=lambda row: (row["status"], row["code"]))
    return [
        {
            **row,
            "example": examples.get(row["code"]),
            "calls": by_code[row["code"]],
            "anywhere": len(by_code[row["code"]]) in {0, len(operations)},
        }
        for row in rows
    ]


def _fields(schema: Json) -> list[Field]:
    """Name, kind, what to know about its presence, and what it is, of each property."""
    needed = set(schema.get("required", ()))
    return [
        (name, kind(field), "" if name in needed else "optional", field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]


def _operation(document: Json, path: str, method: str, operation: Json) -> Json:
    parameters = [*document["paths"][path].get("parameters", []), *operation.get("parameters", [])]
    answers = [_answer(document, status, answer) for status, answer in operation["responses"].items()]
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "short_path": re.sub(r"\{\w+\}", "…", path),
        "summary": operation.get("summary", ""),
        "text": operation.get("description", ""),
        "with_key": "security" in operation,
        "parameters": [(p["name"], kind(p["schema"]), p["in"], p.get("description", "")) for p in parameters],
        "body": _body(document, operation),
        "commands": commands(path, method, operation, parameters),
        "answers": [answer for answer in answers if not answer["codes"]],
        "refusals": [answer for answer in answers if answer["codes"]],
        "codes": {code for answer in answers for code in answer["codes"]},
    }


def _body(document: Json, operation: Json) -> Json | None:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    name = content["schema"]["$ref"].rpartition("/")[2]
    return {"kind": kind(content["schema"]), "fields": _fields(document["components"]["schemas"][name])}


def _answer(document: Json, status: str, answer: Json) -> Json:
    codes: list[str] = []
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        codes = list(answer["content"][MEDIA_TYPE]["examples"])
    return {
        "status": status,
        "codes": codes,
        "headers": [name for name in answer.get("headers", {}) if name != "X-Request-ID"],
        "forms": [_form(media, content) for media, content in answer["content"].items()],
    }


def _form(media: str, content: Json) -> Json:
    example = content.get("example", "")
    text = example if isinstance(example, str) else written(example)
    return {
        "media": media,
        "kind": kind(content["schema"]),
        "example": text,
        "open": text.count("\n") < _SHORT,
    }
