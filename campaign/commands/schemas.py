"""JSON Schemas (draft 2020-12) of the files that Millrace reads and writes, made from their types.

`docs/schemas/` holds a copy of each for editors; `docs/reference/make_cli.py` writes them.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from agents.protocol import Gates
from analysis.records.file_types import CampaignRecord, RunRecord
from campaign.agenda.agenda import Agenda
from campaign.place.revise import Decision
from campaign.results.live_file import LiveRecord
from inventory.cluster import Cluster
from scheduler.online.observation import Observation
from scheduler.placement_file import PlacementFile
from workloads.topology import Topology
from workloads.traffic import Traffic

DIALECT = "https://json-schema.org/draft/2020-12/schema"

TYPES: Mapping[str, type[Struct]] = {
    "agenda": Agenda,
    "campaign": CampaignRecord,
    "cluster": Cluster,
    "live": LiveRecord,
    "observation": Observation,
    "placement": PlacementFile,
    "revision": Decision,
    "run": RunRecord,
    "topology": Topology,
    "traffic": Traffic,
}
"""Name of a schema -> the type of the file."""

PLAIN: Mapping[type[Struct], tuple[type[Struct], ...]] = {
    CampaignRecord: (Agenda, Cluster),
    RunRecord: (PlacementFile, Gates),
}
"""Type of a file -> types of the documents in it that it keeps as plain data."""

_ATTRIBUTES = "\n\n    Attributes:\n"
_ATTRIBUTE = re.compile(r"^ {8}(\w[\w, ]*): ", re.MULTILINE)


def schema_text(name: str) -> str:
    """Return the JSON Schema of a kind of file as indented text."""
    return msgspec.json.format(msgspec.json.encode(make_schema(name)), indent=2).decode() + "\n"


def make_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, a key of `TYPES`.

    Descriptions are those of the types' docstrings; an entry of their `Attributes` describes its property.
    """
    kind = TYPES[name]
    (schema, *_), parts = msgspec.json.schema_components((kind, *PLAIN.get(kind, ())), ref_template="#/$defs/{name}")
    for part in parts.values():
        _describe(part)
    return {"$schema": DIALECT, "title": f"Millrace: {name}", **schema, "$defs": _portable(parts)}


def _describe(part: dict[str, Any]) -> None:
    """Move the entries of `Attributes` from the description of a type to its properties."""
    text, _, attributes = part.get("description", "").partition(_ATTRIBUTES)
    part["description"] = text
    _, *entries = _ATTRIBUTE.split(attributes)
    for names, words in zip(entries[::2], entries[1::2], strict=True):
        for name in names.split(", "):
            if name in part["properties"]:
                part["properties"][name].setdefault("description", " ".join(words.split()))


def _portable(schema: Any, key: str = "") -> Any:
    """Return a schema with the words and regular expressions of JSON instead of Python's, and only standard keys."""
    match schema:
        case dict():
            return {name: _portable(part, name) for name, part in schema.items() if name != "discriminator"}
        case list():
            return [_portable(part) for part in schema]
        case str() if key == "pattern":
            return schema.replace(r"\Z", "$")
        case str() if key == "description":
            return " ".join(re.sub(r"\bNone\b", "null", schema).split())
    return schema
