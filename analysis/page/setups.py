"""Differences of set-up between campaigns: machine, version, agenda, inventory, settings; from their records."""

from collections.abc import Mapping
from typing import Any

from analysis.records.campaign import Campaign
from analysis.records.factors import value_text
from analysis.statistics.metrics import Rows
from inventory.documents import to_plain
from inventory.foreign import printable_all

NOT_GIVEN = "not given"
UNKNOWN = "unknown"
NONE = "none"
"""Values that a campaign lacks, that could not be found out, and that are null in an agenda or inventory."""

VOLATILE = ("host.clock",)
"""Facts that differ after every start of the same machine."""


def setup_rows(campaigns: Mapping[str, Campaign]) -> Rows:
    """Return a row per setting that is not the same in all campaigns: `part`, `setting`, and a text per campaign.

    Args:
        campaigns: label -> campaign; the labels are columns.
    """
    setups = {label: _setup(campaign) for label, campaign in campaigns.items()}
    settings = dict.fromkeys(key for setup in setups.values() for key in setup)
    order = {part: at for at, part in enumerate(PARTS)}
    rows = []
    for part, setting in sorted(settings, key=lambda key: order[key[0]]):
        values = {label: setup.get((part, setting), NOT_GIVEN) for label, setup in setups.items()}
        if len({*values.values()}) > 1:
            rows.append({"part": part, "setting": setting, **_shown(values)})
    return rows


def _shown(values: Mapping[str, "Value"]) -> dict[str, str]:
    """Return the values as text; of long lists, only the entries that not all of them have."""
    lists = [{*value} for value in values.values() if isinstance(value, tuple)]
    common = set.intersection(*lists) if lists else set()
    texts = {}
    for label, value in values.items():
        if isinstance(value, tuple):
            others = [each for each in value if each not in common]
            texts[label] = f"{len(value)} entries" + (f", among them {', '.join(others)}" if others else "")
        else:
            texts[label] = value
    return texts


PARTS = ("machine", "version", "agenda", "inventory", "settings")

Value = str | tuple[str, ...]
"""Text, or the entries of a long list."""

Setup = dict[tuple[str, str], Value]

LONG_LIST = 8


def _setup(campaign: Campaign) -> Setup:
    record = campaign.file
    plain: Mapping[str, Any] = printable_all(to_plain(record))
    setup: Setup = {}

    def add(part: str, name: str, value: Any) -> None:
        for setting, text in _flat(name, value, NONE if part in ("agenda", "inventory") else UNKNOWN):
            if setting not in VOLATILE:
                setup[part, setting] = text

    add("machine", "host", plain["host"])
    machines = {node: entry.facts for run in campaign.runs if run.file for node, entry in run.file.nodes.items()}
    add("machine", "nodes", {node: to_plain(facts) for node, facts in machines.items() if facts is not None})
    for key in ("version", "git_commit", "git_dirty", "results_version"):
        add("version", key, plain[key])
    resumed = [entry["version"] for entry in plain["resumed"]]
    add("version", "continued by", ", ".join(dict.fromkeys(resumed)) or "nobody")
    add("agenda", "", plain["agenda"])
    add("inventory", "", plain["cluster"])
    tiers = {run.file.tier for run in campaign.runs if run.file}
    add("settings", "tier", ", ".join(sorted(map(str, tiers - {None}))) or None)
    cpu: dict[str, set[str]] = {}
    for run in campaign.runs:
        for entry in run.file.cpu if run.file else ():
            cpu.setdefault(f"{entry.node}: {entry.setting}", set()).add(entry.got or UNKNOWN)
    for name, got in cpu.items():
        setup["settings", name] = ", ".join(sorted(got))
    return setup


def _flat(name: str, value: Any, null: str) -> list[tuple[str, Value]]:
    """Return (setting, value) of a value: keys of mappings and names of entries are joined by dots."""
    match value:
        case None:
            return [(name, null)]
        case Mapping():
            inner = value.items()
        case [*_] if value and all(isinstance(each, Mapping) and _name(each) for each in value):
            inner = [(_name(each), each) for each in value]  # type: ignore[assignment]
        case [*_] if len(value) > LONG_LIST and all(isinstance(each, str) for each in value):
            return [(name, tuple(value))]
        case float() if value.is_integer():
            # Versions differ in whether they write 10 or 10.0.
            return [(name, str(int(value)))]
        case _:
            return [(name, value_text(value))]
    return [pair for key, each in inner for pair in _flat(f"{name}.{key}" if name else str(key), each, null)]


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("label") or entry.get("id") or entry.get("name") or "")
