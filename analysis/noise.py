"""Note on the settings of machines that make figures vary, from the facts of all nodes. It is no reason for doubt."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.results import Campaign

_NAMES = {
    "governor": "governor",
    "turbo": "turbo",
    "smt": "SMT",
    "swap": "swap",
    "huge_pages": "transparent huge pages",
}

_STEADY = {
    "governor": ("performance", "userspace"),
    "turbo": ("off",),
    "smt": ("off", "forceoff", "notsupported", "notimplemented"),
    "swap": ("off",),
    "huge_pages": ("madvise", "never"),
}
"""Values that do not make figures vary."""

_MOST_NAMED = 6


def noise_notes(campaign: Campaign) -> list[tuple[str, str]]:
    """Return the note as (subject, sentence), with a part per machine; empty if no machine reported its settings."""
    machines: dict[tuple[str, ...], tuple[Mapping[str, Any], list[str]]] = {}
    for run in campaign.counted:
        for node, entry in run.file.nodes.items() if run.file else ():
            facts = campaign.file.host if entry.facts is None else entry.facts
            settings = {name: facts.get(name) for name in _NAMES}
            if facts.keys() & _NAMES:
                # Nodes that share a machine may have CPU settings of their own when they are emulated.
                machine = (str(facts.get("hostname")), str(facts.get("clock")), str(sorted(settings.items())))
                names = machines.setdefault(machine, (settings, []))[1]
                if node not in names:
                    names.append(node)
    varied = _varied(campaign.agenda.cpu)
    parts = [f"{_listed(sorted(names))}: {_in_words(settings, varied)}" for settings, names in machines.values()]
    return [("Settings", f"{'. '.join(parts)}.")] if parts else []


def _varied(cpu: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> set[str]:
    """Return the settings that the campaign's CPU settings vary, so that its report shows what they cost."""
    if cpu is None or isinstance(cpu, Mapping):
        return set()
    nodes = [entry.get("nodes", {}) for entry in cpu]
    return {
        name
        for name in _STEADY
        if len({str({kind: settings.get(name) for kind, settings in each.items()}) for each in nodes}) > 1
    }


def _in_words(settings: Mapping[str, Any], varied: set[str]) -> str:
    noisy, steady, unknown = [], [], []
    for name, words in _NAMES.items():
        value = settings.get(name)
        shown = f"{words} {value}"
        if value is None:
            unknown.append(words)
        elif value in _STEADY[name]:
            steady.append(shown)
        else:
            noisy.append(f"{shown} ({'its cost: see the CPU settings' if name in varied else 'cost not measured'})")
    parts = (("can make figures vary", noisy), ("steady", steady), ("not available", unknown))
    return "; ".join(f"{heading}: {', '.join(listed)}" for heading, listed in parts if listed)


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more nodes" if rest > 0 else "")
