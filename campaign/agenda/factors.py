"""Factors of an agenda: their combinations, rules that leave runs out, and agenda and cluster at each combination.

A combination is applied to the plain data of the agenda, whose changed values keep the lines of the factors' values.
Every check of an agenda therefore also checks the factors, and its message names the factor's line.
"""

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from analysis.records.factors import INVENTORY, Factors, factors_text, put, value_text
from campaign.agenda.agenda import Agenda, Rule, agenda_of
from inventory.cluster import Cluster, Node
from inventory.documents import Document, Located, Origin, Steps
from inventory.errors import InputError, nearest

MOST_COMBINATIONS = 10_000

NODES = "nodes"
OF_CLUSTER = (INVENTORY, NODES, "slots")
"""Factors of the cluster: its inventory, the number of nodes, and the number of slots of each."""

LOAD = "load"
"""Factor of the load of all workloads."""

OF_ENGINE = ("engine", "engine_options", "acks", "linger_ms")
"""Factors of the engine that runs the topology: its name, its own settings, whether rows are acknowledged, and how long
they wait for others."""

PARTS = {"workloads": ("params", "rate", "demands"), "schedulers": ("params",)}
"""Lists of an agenda -> keys of their entries that factors can vary."""

FORMS = (
    *OF_CLUSTER,
    LOAD,
    *OF_ENGINE,
    *(f"{entries}.LABEL.{part}.KEY" for entries, parts in PARTS.items() for part in parts),
)


def combinations_of(located: Located[Agenda]) -> tuple[Factors, ...]:
    """Return the combinations of an agenda's factors, each once; a single empty one without factors.

    Raises:
        InputError: a factor is unknown, a value is listed twice, or a zip has lists of different lengths.
    """
    agenda, origin = located.value, located.origin / "factors"
    for key in agenda.factors:
        if key not in (*OF_CLUSTER, *OF_ENGINE, LOAD):
            _target(key, agenda, origin)
    lengths = {key: len(values) for key, values in agenda.factors.items()}
    if agenda.combine == "product":
        for key, values in agenda.factors.items():
            _check_distinct([value_text(value) for value in values], origin / key)
        if math.prod(lengths.values()) > MOST_COMBINATIONS:
            raise origin.error(f"more than {MOST_COMBINATIONS:,} combinations")
        rows = list(itertools.product(*agenda.factors.values()))
    else:
        if len(set(lengths.values())) > 1:
            given = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise origin.error(f"combine: zip needs as many values of each factor: {given}")
        rows = list(zip(*agenda.factors.values(), strict=True)) if lengths else [()]
    combinations = [dict(zip(agenda.factors, row, strict=True)) for row in rows]
    _check_distinct([factors_text(factors) for factors in combinations], origin)
    return tuple(combinations)


def names_in(agenda: Agenda) -> dict[str, list[str]]:
    """Return what distinguishes runs of an agenda: the keys of `--only` and of rules, each with its values as text."""
    names = {"workload": agenda.labels, "scheduler": agenda.scheduler_labels}
    if isinstance(agenda.cpu, tuple):
        names["cpu"] = agenda.cpu_labels
    return names | {key: [value_text(value) for value in values] for key, values in agenda.factors.items()}


def rules_of(located: Located[Agenda]) -> Callable[[Mapping[str, str]], bool]:
    """Return whether runs with these labels are kept by the rules `only`, and then `except`, of an agenda.

    Raises:
        InputError: a rule has an unknown key, or a value that no run has.
    """
    agenda, names = located.value, names_in(located.value)
    for key, rules in (("only", agenda.only), ("except", agenda.excluded)):
        for at, rule in enumerate(rules):
            for name, value in rule.items():
                here, text = located.origin / key / at / name, value_text(value)
                if name not in names:
                    raise here.error(f"{name!r} is no factor of this agenda{nearest(name, names)}")
                if text not in names[name]:
                    raise here.error(f"no run has {name} {text!r}{nearest(text, names[name])}")

    def matches(rule: Rule, labels: Mapping[str, str]) -> bool:
        return all(labels[name] == value_text(value) for name, value in rule.items())

    def keeps(labels: Mapping[str, str]) -> bool:
        chosen = not agenda.only or any(matches(rule, labels) for rule in agenda.only)
        return chosen and not any(matches(rule, labels) for rule in agenda.excluded)

    return keeps


def agenda_at(located: Located[Agenda], factors: Factors) -> Located[Agenda]:
    """Return the agenda at a combination of its factors.

    Raises:
        InputError: a value cannot be used.
    """
    agenda, document = located.value, located.origin.document
    inventory = factors.get(INVENTORY, agenda.inventory)
    if all(key in OF_CLUSTER for key in factors):
        return Located(replace(agenda, inventory=inventory), located.origin)
    changed = Document(document.source, copy.deepcopy(document.data), dict(document.lines))
    for key, value in factors.items():
        here = value_origin(located, key, value)
        if key == LOAD:
            for at in range(len(agenda.workloads)):
                _put(changed, ("workloads", at, "rate", "load"), value, here)
        elif key in OF_ENGINE:
            changed.data[key] = value
            _set_line(changed, (key,), here)
        elif key not in OF_CLUSTER:
            _put(changed, _target(key, agenda, located.origin / "factors"), value, here)
    combined = agenda_of(changed)
    # The inventory may have been given on the command line.
    return Located(replace(combined.value, inventory=inventory), combined.origin)


def too_few_nodes(located: Located[Agenda], factors: Factors, cluster: Cluster) -> InputError | None:
    """Return the error that a combination asks for more nodes than are available; None if it does not.

    Raises:
        InputError: its number of nodes is none.
    """
    if NODES not in factors:
        return None
    here, count = _whole(located, factors, NODES)
    usable = len(cluster.available)
    return here.error(f"got {count}, but the inventory has {usable} available nodes") if count > usable else None


def cluster_at(located: Located[Agenda], factors: Factors, cluster: Cluster) -> Cluster:
    """Return the cluster at a combination: its first available nodes, each with this number of slots.

    Raises:
        InputError: the cluster has fewer nodes, or a node has fewer ports or needs more slots.
    """
    nodes = cluster.nodes
    if fault := too_few_nodes(located, factors, cluster):
        raise fault
    if NODES in factors:
        usable = [at for at, node in enumerate(nodes) if node.available]
        nodes = nodes[: usable[factors[NODES] - 1] + 1]
    if "slots" in factors:
        here, count = _whole(located, factors, "slots")
        nodes = tuple(_with_slots(node, count, here) for node in nodes)
    kept = {node.id: node.slots for node in nodes}
    existing = tuple(worker for worker in cluster.existing if worker.node in kept)
    for worker in existing:
        if worker.slot >= kept[worker.node]:
            raise (located.origin / "factors" / "slots").error(
                f"got {kept[worker.node]}, but a worker is running in slot {worker.slot} of {worker.node}"
            )
    return replace(cluster, nodes=nodes, existing=existing)


def value_origin(located: Located[Agenda], key: str, value: Any) -> Origin:
    """Return the origin of a factor's value."""
    return located.origin / "factors" / key / located.value.factors[key].index(value)


def _target(key: str, agenda: Agenda, origin: Origin) -> Steps:
    """Return the steps of the value in the agenda that a factor varies; labels may contain dots."""
    entries, _, rest = key.partition(".")
    if entries not in PARTS:
        raise (origin / key).error(f"unknown factor {key!r}{nearest(key, FORMS)}")
    labels = agenda.labels if entries == "workloads" else agenda.scheduler_labels
    for at, label in enumerate(labels):
        part, _, path = rest.removeprefix(f"{label}.").partition(".")
        if rest.startswith(f"{label}.") and path and part in PARTS[entries]:
            return (entries, at, part, *path.split("."))
    parts = " or ".join(PARTS[entries])
    unknown = next((rest.partition(f".{part}.")[0] for part in PARTS[entries] if f".{part}." in rest), "")
    if not unknown or unknown in labels:
        raise (origin / key).error(f"unknown factor {key!r}; expected {entries}.LABEL, then {parts}, then a key")
    raise (origin / key).error(f"there is no {entries.removesuffix('s')} {unknown!r}{nearest(unknown, labels)}")


def _put(document: Document, steps: Steps, value: Any, origin: Origin) -> None:
    """Replace the value at `steps` of an agenda, or add it, with the line of `origin`."""
    entries, at, *path = steps
    listed = document.data[entries]
    if isinstance(listed[at], str):
        listed[at] = {"name": listed[at]}
    try:
        inside = put(listed[at], [str(step) for step in path], value)
    except ValueError as fault:
        raise origin.error(str(fault)) from None
    for depth in range(2, len(inside) + 1):
        _set_line(document, (entries, at, *inside[:depth]), origin)


def _set_line(document: Document, steps: Steps, origin: Origin) -> None:
    """Give the value at `steps` of an agenda the line of `origin`, if that is known."""
    line = origin.document.line(origin.steps)
    if line is not None:
        document.lines[steps] = line


def _whole(located: Located[Agenda], factors: Factors, key: str) -> tuple[Origin, int]:
    value = factors[key]
    here = value_origin(located, key, value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise here.error(f"got {value_text(value)}, expected a whole number, 1 or more")
    return here, value


def _with_slots(node: Node, count: int, origin: Origin) -> Node:
    if node.ports is None:
        return replace(node, slots=count)
    if count > len(node.ports):
        raise origin.error(f"got {count}, but the node {node.id} has {len(node.ports)} ports")
    return replace(node, slots=count, ports=node.ports[:count])


def _check_distinct(texts: Sequence[str], origin: Origin) -> None:
    for at, text in enumerate(texts):
        if texts.index(text) != at:
            raise origin.error(f"{text} is listed twice")
