"""Origin of results: version, machine, seeds and clusters; parts of `campaign.json`."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct


def document_schema(name: str) -> Meta:
    """Return the schema of a document of its own, which is kept as plain data."""
    return Meta(extra_json_schema={"$ref": f"#/$defs/{name}"})


class Provenance(Struct, frozen=True, kw_only=True):
    """Version, commit and machine of a controller.

    Attributes:
        version: version of Millrace.
        git_commit, git_dirty: its commit, and whether tracked files have changed since; null outside a checkout.
        host: facts of the controller's machine.
        started_utc: start of the campaign, or of its continuation.
    """

    version: str = ""
    git_commit: str | None = None
    git_dirty: bool | None = None
    host: Mapping[str, Any] = {}
    started_utc: str | None = None


class Seeds(Struct, frozen=True):
    """Seed of the campaign, and seed of each run by its name."""

    campaign: int | None = None
    runs: Mapping[str, int] = {}


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """A cluster, if a campaign has several.

    Attributes:
        cluster: all nodes, with their data addresses.
        inventory: path of the Ansible inventory with the SSH settings of nodes; null for a cluster file.
    """

    cluster: Annotated[Mapping[str, Any], document_schema("Cluster")]
    inventory: str | None = None
