"""Settings of machines that make figures vary, from the facts of nodes, in words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NAMES = {
    "governor": "governor",
    "turbo": "turbo",
    "smt": "SMT",
    "swap": "swap",
    "huge_pages": "transparent huge pages",
}

STEADY = {
    "governor": ("performance", "userspace"),
    "turbo": ("off",),
    "smt": ("off", "forceoff", "notsupported", "notimplemented"),
    "swap": ("off",),
    "huge_pages": ("madvise", "never"),
}
"""Values that do not make figures vary."""

_MOST_NAMED = 6

BUSY = 0.5
"""Load per core from which a host is busy before a campaign has begun."""


def before_a_run(facts: Mapping[str, Mapping[str, Any]], load: float | None, cores: int) -> list[str]:
    """Return lines for the operator on what can make figures vary; empty if nothing is known to.

    Args:
        facts: node -> its facts.
        load: mean number of running processes of this host in the last minute; None if its nodes are other machines.
        cores: CPU cores of this host.
    """
    lines = [
        f"{node_names_text(names)}: can make figures vary: {', '.join(noisy)}"
        for settings, names in settings_by_machine(facts.items())
        if (noisy := _noisy(settings))
    ]
    if load is not None and load > BUSY * cores:
        lines.append(f"this host is busy: {load:.1f} processes at a time during the last minute, on {cores} CPU cores")
    return lines


def settings_by_machine(
    nodes: Iterable[tuple[str, Mapping[str, Any]]],
) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the settings of each machine that reports any, with its nodes."""
    machines: dict[tuple[str, ...], tuple[dict[str, Any], list[str]]] = {}
    for node, facts in nodes:
        settings = {name: facts.get(name) for name in NAMES}
        if facts.keys() & NAMES:
            # Nodes that share a machine may have CPU settings of their own when they are emulated.
            machine = (str(facts.get("hostname")), str(facts.get("clock")), str(sorted(settings.items())))
            names = machines.setdefault(machine, (settings, []))[1]
            if node not in names:
                names.append(node)
    return [(settings, sorted(names)) for settings, names in machines.values()]


def _noisy(settings: Mapping[str, Any]) -> list[str]:
    return [
        f"{words} {settings[name]}"
        for name, words in NAMES.items()
        if settings[name] is not None and settings[name] not in STEADY[name]
    ]


def settings_text(settings: Mapping[str, Any], costs: Mapping[str, str]) -> str:
    """Return a machine's settings as noisy, steady and not available ones; `costs` has what is known of noisy ones."""
    noisy, steady, unknown = [], [], []
    for name, words in NAMES.items():
        value = settings.get(name)
        shown = f"{words} {value}"
        if value is None:
            unknown.append(words)
        elif value in STEADY[name]:
            steady.append(shown)
        else:
            noisy.append(f"{shown} ({costs.get(name, 'cost not measured')})")
    parts = (("can make figures vary", noisy), ("steady", steady), ("not available", unknown))
    return "; ".join(f"{heading}: {', '.join(listed)}" for heading, listed in parts if listed)


def node_names_text(names: Sequence[str]) -> str:
    """Return names of nodes as text, the first few by name."""
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more nodes" if rest > 0 else "")
