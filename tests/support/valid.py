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


def faults(name: str, document: Any) -> list[str]:
    """What is wrong with a document of a kind, for example `run`."""
    return [f"{fault.json_path}: {fault.message}" for fault in validator(name).iter_errors(document)]


def checked(name: str, path: Path) -> Any:
    """The content of a JSON file, which is valid."""
    document = json.loads(path.read_text())
    assert faults(name, document) == [], path
    return document
