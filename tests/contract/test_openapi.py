"""The OpenAPI document tells the truth about what is served."""

from typing import Any

import httpx
import pytest

METHODS = ("get", "put", "post", "delete", "patch", "options", "head", "trace")


@pytest.fixture
def schema(client: httpx.Client) -> dict[str, Any]:
    return client.get("/v3/openapi").json()


def operations(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": item[method]
        for path, item in schema["paths"].items()
        for method in METHODS
        if method in item
    }


def test_every_operation_has_a_name_and_a_summary(schema: dict[str, Any]):
    found = operations(schema)
    names = [operation["operationId"] for operation in found.values()]

    assert len(names) == len(set(names))
    assert all(name.isalnum() for name in names)
    for operation in found.values():
        assert operation["summary"]
        assert operation["tags"]


def test_every_operation_declares_its_key_and_its_errors(schema: dict[str, Any]):
    for name, operation in operations(schema).items():
        answers = operation["responses"]
        assert "422" not in answers, name
        # An address of a file is signed.
        if name in ("GET /health", "GET /ready") or "/v3/files/" in name:
            continue
        assert operation["security"] == [{"bearer": []}], name
        for status in ("400", "401", "403", "404", "429", "500", "503"):
            [kind] = answers[status]["content"].values()
            assert kind["schema"] == {"$ref": "#/components/schemas/Error"}, name


def test_every_success_says_what_comes_back(schema: dict[str, Any]):
    for name, operation in operations(schema).items():
        successes = [status for status in operation["responses"] if status.startswith("2")]
        assert successes or name == "POST /feedback", name  # which goes to nobody here
        for status in successes:
            answer = operation["responses"][status]
            if status != "204":
                assert answer["content"], name
                assert all(kind["schema"] for kind in answer["content"].values()), name


def test_no_reference_leads_nowhere(schema: dict[str, Any]):
    def references(node: Any) -> list[str]:
        match node:
            case {"$ref": str(reference)}:
                return [reference]
            case dict():
                return [found for value in node.values() for found in references(value)]
            case list():
                return [found for value in node for found in references(value)]
            case _:
                return []

    for reference in references(schema):
        node: Any = schema
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
        assert node


def test_every_json_body_has_an_example_that_is_taken(client: httpx.Client, schema: dict[str, Any]):
    seen = 0
    for name, operation in operations(schema).items():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        shape = content["schema"]
        reference = shape.get("$ref") or shape["anyOf"][0]["$ref"]
        model = schema["components"]["schemas"][reference.rsplit("/", 1)[1]]
        assert model["examples"], name
        method, path = name.split(" ")
        for example in model["examples"]:
            for field in ("{id}", "{tag}", "{connectionId}", "{connection}", "{namespace}"):
                path = path.replace(field, "x")
            answer = client.request(method, path.replace("{provider}", "s3"), json=example)
            # The example of a connection is a crawler's; `s3` wants other metadata.
            wanting = ("/v3/settings/reset", "/v3/connections/{provider}")
            expected = {400} if name.split(" ")[1] in wanting else {200, 201, 404}
            assert answer.status_code in expected, answer.text
            seen += 1

    assert seen >= 10
