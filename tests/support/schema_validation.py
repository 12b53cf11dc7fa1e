"""Validation of documents against the JSON Schemas of `docs/schemas/`."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def schema_errors(name: str, document: Any) -> list[str]:
    """Return the schema errors of a document of a kind, for example `run`."""
    return [f"{fault.json_path}: {fault.message}" for fault in validator(name).iter_errors(document)]


def load_valid(name: str, path: Path) -> Any:
    """Load a JSON file and check it against its schema."""
    document = json.loads(path.read_text())
    assert schema_errors(name, document) == [], path
    return document
