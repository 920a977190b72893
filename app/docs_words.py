"""The description's parts as words for people: what a schema means, prose with `code` in it, and calls as curl commands."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from markupsafe import Markup, escape

Json = dict[str, Any]
_LONGEST_PATTERN = 60  # what is longer helps nobody who reads
_LONGEST_LINE = 76  # of a body in a command; what is longer gets a line for each member
_SPAN = {"minLength": "maxLength", "minimum": "maximum", "minItems": "maxItems"}
_UNIT = {"minLength": " characters", "minimum": "", "minItems": " items"}
_NEXT_LINE = " \\\n  "


def kind(schema: Json) -> Markup:
    """A JSON Schema in a few words, with links to the shapes that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#shape-{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(kind(option) for option in schema["anyOf"])
    if "enum" in schema:
        listed = Markup(", ").join(
            Markup("<code>{}</code>").format(value) for value in schema["enum"] if value is not None
        )
        return Markup("one of ") + listed + (" or null" if None in schema["enum"] else "")
    if "items" in schema:
        return Markup("list of ") + kind(schema["items"])
    types = schema.get("type", "anything")
    words = [types] if isinstance(types, str) else list(types)
    return Markup(" or ").join(escape(word) for word in words) + _limits(schema)


def _limits(schema: Json) -> Markup:
    said = [schema["format"]] if "format" in schema else []
    for low, high in _SPAN.items():
        if low in schema and high in schema:
            said.append(f"{schema[low]} to {schema[high]}{_UNIT[low]}")
    if "exclusiveMinimum" in schema:
        said.append(f"more than {schema['exclusiveMinimum']:.15g}, at most {schema['maximum']}")
    marked = [escape(text) for text in said]
    if len(schema.get("pattern", "")) <= _LONGEST_PATTERN and "pattern" in schema:
        marked.append(Markup("<code>{}</code>").format(schema["pattern"]))
    if schema.get("default") is not None:
        marked.append(Markup("default <code>{}</code>").format(json.dumps(schema["default"])))
    return Markup("").join(Markup(", ") + text for text in marked)


def ticked(text: str) -> Markup:
    """Prose with `code` in it; a blank line starts a paragraph."""
    paragraphs = [re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(part))) for part in text.split("\n\n")]
    return Markup("".join(f"<p>{part}</p>" for part in paragraphs if part))  # noqa: S704 (escaped above)


def written(value: Any) -> str:
    """JSON as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def commands(path: str, method: str, operation: Json, parameters: list[Json]) -> list[tuple[str, str]]:
    """How to call it with curl, once for each example of a body: what it shows, and the command."""
    for parameter in parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    parts = [f'curl -sS{"" if method == "get" else f" -X {method.upper()}"} "$API_URL{path}"']
    if "security" in operation:
        parts.append('-H "Authorization: Bearer $API_KEY"')
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = body.get("examples", {}).values()
    if not examples:
        return [("", _NEXT_LINE.join(parts))]
    return [
        (
            example["summary"],
            _NEXT_LINE.join([*parts, *_headers(parameters, number), *_data(example["value"])]),
        )
        for number, example in enumerate(examples, 1)
    ]


def _headers(parameters: list[Json], number: int) -> list[str]:
    """Those that the call takes; another value for each command, since a key is for one body."""
    return [
        "-H " + shlex.quote(f"{parameter['name']}: {parameter['example']}-{number}")
        for parameter in parameters
        if parameter["in"] == "header"
    ]


def _data(body: Json) -> list[str]:
    text = json.dumps(body, ensure_ascii=False)
    if len(text) > _LONGEST_LINE:
        text = written(body)
    return ["-H 'Content-Type: application/json'", f"-d {shlex.quote(text)}"]
