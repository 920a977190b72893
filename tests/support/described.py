"""A client that checks every answer against the service's own description."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator
from werkzeug.test import TestResponse

from app import description
from tests.support.api import Api

Json = dict[str, Any]


@dataclass
class Described:
    """Calls as `api`'s owner. `seen` collects which operation answered what: (operationId, status, problem code)."""

    api: Api
    document: Json = field(init=False)
    seen: set[tuple[str, int, str | None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.document = self.api.http.get("/openapi.json").get_json()

    def call(self, name: str, *, with_key: bool = True, **options: Any) -> TestResponse:
        """The call with that operationId. `path` fills its parameters, `headers` and the rest go to the test client."""
        path, method, operation = self.operation(name)
        filled = path.format(**options.pop("path", {}))
        headers = {**(self.api.headers if with_key else {}), **options.pop("headers", {})}
        answer = self.api.http.open(filled, method=method.upper(), headers=headers, **options)
        self.check(name, operation, answer)
        return answer

    def operation(self, name: str) -> tuple[str, str, Json]:
        found = [entry for entry in description.operations(self.document) if entry[2]["operationId"] == name]
        assert len(found) == 1, name
        return found[0]

    def check(self, name: str, operation: Json, answer: TestResponse) -> None:
        """Declared status, content type, headers and shape; nothing in the body that the description does not name."""
        responses = operation["responses"]
        assert str(answer.status_code) in responses, (name, answer.status_code, answer.text)
        declared = self.resolve(responses[str(answer.status_code)])
        assert answer.mimetype in declared["content"], (name, answer.mimetype)
        for header, reference in declared["headers"].items():
            described = self.resolve(reference)
            assert header in answer.headers or not described.get("required"), (name, header)
            if header in answer.headers:
                value: Any = answer.headers[header]
                self.validate(
                    described["schema"], int(value) if described["schema"]["type"] == "integer" else value
                )
        body: Any = answer.get_json(force=True) if "json" in answer.mimetype else answer.text
        self.validate(declared["content"][answer.mimetype]["schema"], body)
        if isinstance(body, dict):
            schema = self.shape_of(declared["content"][answer.mimetype]["schema"], body)
            assert set(body) <= set(schema["properties"]), (name, set(body) - set(schema["properties"]))
        code = body["code"] if answer.mimetype.endswith("problem+json") else None
        self.seen.add((name, answer.status_code, code))

    def validate(self, schema: Json, value: Any) -> None:
        validator = Draft202012Validator({**schema, "components": self.document["components"]})
        problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        assert not problems, problems

    def resolve(self, found: Json) -> Json:
        while "$ref" in found:
            target: Any = self.document
            for step in found["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            found = target
        return found

    def shape_of(self, schema: Json, body: Json) -> Json:
        """Of the alternatives for problems the one that names this code."""
        for option in schema.get("oneOf", [schema]):
            if body.get("code") in option.get("properties", {}).get("code", {}).get(
                "enum", [body.get("code")]
            ):
                return self.resolve(option)
        raise AssertionError(body)

    def codes(self, name: str) -> set[str]:
        """Every problem that the description lets this call answer."""
        _, _, operation = self.operation(name)
        return {
            code
            for answer in map(self.resolve, operation["responses"].values())
            for code in answer["content"].get("application/problem+json", {}).get("examples", {})
        }
