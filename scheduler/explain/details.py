"""The `details` of a plan as tables of text, with names of executors and nodes in place of numbers.

The keys used by the built-in schedulers have titles here. Other details are shown unchanged, a list of objects as a
table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from scheduler.problem import CommunicationSchedule, Problem
from workloads.topology import Executor

MOST_ROWS = 40
"""Maximum number of table rows shown."""

MOST_ENTRIES = 60
"""Maximum number of list entries shown in one cell."""

EXECUTORS = {"groups", "order", "over_limit", "over_capacity", "unplaced"}
"""Keys whose lists hold executors by number, over all topologies in order."""

OF_TOPOLOGY = {"order", "workers", "executors"}
"""Keys below a topology whose lists hold executors by number, within that topology."""

NODES = {"slot_nodes", "used_nodes", "node_order", "nodes", "opened"}
"""Keys whose lists hold nodes by number, in the cluster's order."""

HOSTS = {"m_inter", "m_fin", "sm"}
"""Keys whose matrices hold nodes by number among those of the communication schedule."""

PER_HOST = {"node_loads"}
"""Keys whose lists hold one value for each of these nodes."""

SPARSE = {"class_table": "pairs"}
"""Tables, with the column that must not be empty: other rows are left out."""

TITLES = {
    "groups": "executors of each slot, in the order in which slots were filled",
    "slot_nodes": "node of each of these slots",
    "flops": "FLOPs per cycle come from",
    "passes": "passes: t single executors and f groups are left, parts of c on q nodes; k parts are cut, alpha fused",
    "fallback": "direct mapping was used instead of the optimiser",
    "workers": "executors per worker",
    "phi": "largest graph for the optimiser",
    "limit_hit": "a time limit ended the search",
    "proven": "W is proven to be the minimum",
    "lower_bound": "W is at least",
    "gap": "W is above that by at most this share",
    "scheduling_order": "topologies in the order tried",
    "rack_order": "racks in the order tried",
    "t": "executors per component, padded",
    "G": "rows dealt to a node at a time",
    "m_inter": "node of each executor before refinement (row = index, column = component)",
    "schedule": "receivers (row = step, column = sender)",
    "layers": "layers of components: exchanges of columns that the refinement made",
    "m_fin": "node of each executor after refinement",
    "timeline": "time slots: steps that start, and whether the pipeline stalls",
    "node_loads": "executors per node",
    "g": "classes of node pairs",
    "class_table": "classes: pairs of old and new node, and tasks in common",
    "sim": "receivers per class and sender",
    "sm": "receivers in the change (row = step, column = old node)",
    "costs": "cost of each step",
    "total_cost": "cost of all steps",
    "prop2": "estimate of that cost",
    "used_nodes": "nodes used",
    "started": "workers started, topology by topology in this order",
    "order": "executors in the order placed",
    "most_executors": "executors that a node may take",
}


@dataclass(frozen=True)
class Section:
    """A title with a text or a table.

    Attributes:
        title: heading.
        text: a single value; empty for a table.
        columns: headings of the table.
        rows: cells, one per column.
        left_out: number of rows not shown.
    """

    title: str
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0


def describe_details(
    problem: Problem, details: Mapping[str, Any], schedule: CommunicationSchedule | None
) -> list[Section]:
    """Return one section for each step of the algorithm, in the order of `details`."""
    names = _Names(problem, schedule.nodes if schedule is not None else ())
    sections: list[Section] = []
    for key, value in details.items():
        if key == "schedule" and schedule is not None:
            continue  # same content as the communication schedule, which has names
        sections.extend(_sections(names, key, TITLES.get(key, key.replace("_", " ")), value))
    if schedule is not None:
        sections.append(_steps(schedule))
    return sections


def compact(executors: Sequence[str]) -> str:
    """Return executor names with ranges folded: `split[0-3,7] count[1]`."""
    parts: list[str] = []
    for component, mine in groupby(sorted(map(Executor.named, executors)), key=lambda e: e.component):
        indices = [executor.index for executor in mine]
        # Within a run of consecutive numbers, number minus position stays the same.
        runs = [[i for _, i in run] for _, run in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0])]
        shown = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
        parts.append(f"{component}[{shown}]")
    return " ".join(parts)


class _Names:
    """Names of executors, nodes and topologies by number; `hosts` are the nodes of the communication schedule."""

    def __init__(self, problem: Problem, hosts: Sequence[str]) -> None:
        several = len(problem.topologies) > 1
        self._problem, self._hosts = problem, hosts
        self._lists = EXECUTORS
        self.topologies = [topology.id for topology in problem.topologies]
        self.nodes = [node.id for node in problem.cluster.nodes]
        self.executors = [
            f"{topology.id}/{executor.name}" if several else executor.name
            for topology in problem.topologies
            for executor in topology.executors
        ]

    def within(self, topology: object) -> "_Names":
        """Return the names for values nested below a topology, given by id or number, or `self` for other values."""
        number = self.topologies.index(topology) if topology in self.topologies else topology
        if not _all_below([number], len(self.topologies)):
            return self
        names = _Names(self._problem, self._hosts)
        names._lists = OF_TOPOLOGY
        names.executors = [executor.name for executor in self._problem.topologies[cast("int", number)].executors]
        return names

    def of(self, key: str, value: Any) -> Any:
        """Return `value` with names for the numbers under `key`, or unchanged where it has none."""
        if not isinstance(value, list):
            named = {"topology": self.topologies, "node": self.nodes}.get(key, ())
            return named[value] if _all_below([value], len(named)) else value
        if key in self._lists and _all_below(value, len(self.executors)):
            names = [self.executors[number] for number in value]
            return (_listed(names) if key == "order" else compact(names)) or "none"
        if key in NODES and _all_below(value, len(self.nodes)):
            return _listed([self.nodes[number] for number in value])
        if key in PER_HOST and len(value) == len(self._hosts):
            return _listed([f"{host} {_text(each)}" for host, each in zip(self._hosts, value, strict=True)])
        return value

    def hosts_in(self, key: str, row: list[Any]) -> list[Any]:
        """Return a row of a matrix with names for the node numbers; None stays None."""
        if key in HOSTS and _all_below([number for number in row if number is not None], len(self._hosts)):
            return [None if number is None else self._hosts[number] for number in row]
        return row


def _all_below(values: Sequence[Any], limit: int) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit for value in values)


def _sections(names: _Names, key: str, title: str, value: Any) -> list[Section]:
    if isinstance(value, Mapping):
        parts: list[Section] = []
        for inner, each in value.items():
            below = names.within(inner) if key == "topologies" else names
            parts.extend(_sections(below, inner, f"{title}: {inner}", each))
        return parts
    if not isinstance(value, list) or not value or names.of(key, value) is not value:
        return [Section(title, _text(names.of(key, value)))]
    if all(isinstance(entry, Mapping) for entry in value):
        return _objects(names, title, [entry for entry in value if key not in SPARSE or entry.get(SPARSE[key])])
    if all(isinstance(entry, list) for entry in value):
        return [_lists(names, key, title, value)]
    return [Section(title, _text(value))]


def _objects(names: _Names, title: str, objects: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return one table; matrices inside the objects get tables of their own."""
    columns = list(dict.fromkeys(key for entry in objects for key in entry))
    wide = [key for key in columns if any(_is_matrix(entry.get(key)) for entry in objects)]
    flat = [key for key in columns if key not in wide]
    rows = [
        (str(at), *(_text(names.within(entry.get("topology")).of(key, entry.get(key))) for key in flat))
        for at, entry in enumerate(objects[:MOST_ROWS])
    ]
    left_out = max(0, len(objects) - MOST_ROWS)
    sections = [Section(title, columns=("", *flat), rows=tuple(rows), left_out=left_out)] if flat else []
    for at, entry in enumerate(objects[:MOST_ROWS]):
        for key in wide:
            sections.extend(_sections(names, key, f"{TITLES.get(key, key)}, {at}", entry.get(key)))
    return sections


def _is_matrix(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(row, list) and len(row) > 2 for row in value)


def _lists(names: _Names, key: str, title: str, lists: Sequence[list[Any]]) -> Section:
    left_out = max(0, len(lists) - MOST_ROWS)
    shown = lists[:MOST_ROWS]
    named = [names.of(key, entry) for entry in shown]
    if _is_matrix(lists) and all(isinstance(entry, list) for entry in named) and len({len(row) for row in lists}) == 1:
        width = min(len(lists[0]), MOST_ENTRIES)
        rows = tuple((str(at), *map(_text, names.hosts_in(key, row)[:width])) for at, row in enumerate(shown))
        return Section(title, columns=("", *map(str, range(width))), rows=rows, left_out=left_out)
    rows = tuple((str(at), _text(entry)) for at, entry in enumerate(named))
    return Section(title, columns=("", ""), rows=rows, left_out=left_out)


def _steps(schedule: CommunicationSchedule) -> Section:
    rows = [
        (
            str(at),
            _listed(
                [
                    f"{schedule.nodes[sender]} to {schedule.nodes[receiver]}"
                    for sender, receiver in enumerate(step)
                    if receiver is not None
                ]
            ),
        )
        for at, step in enumerate(schedule.steps[:MOST_ROWS])
    ]
    title = f"communication schedule: {schedule.stages} stages, who sends to whom in each step"
    return Section(title, columns=("step", ""), rows=tuple(rows), left_out=max(0, len(schedule.steps) - MOST_ROWS))


def _listed(texts: Sequence[str]) -> str:
    more = f" ... and {len(texts) - MOST_ENTRIES} more" if len(texts) > MOST_ENTRIES else ""
    return ", ".join(texts[:MOST_ENTRIES]) + more


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return _listed([f"({_text(entry)})" if isinstance(entry, list) else _text(entry) for entry in value]) or "none"
    if isinstance(value, Mapping):
        return _listed([f"{key} {_text(entry)}" for key, entry in value.items()])
    return str(value) or "none"
