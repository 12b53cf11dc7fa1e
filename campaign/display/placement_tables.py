"""Tables of `millrace place`: one placement, several schedulers on the same round, and what explains a plan."""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from campaign.display.terminal import plain_console
from campaign.place.place import PlacedProblem, PlacementRefused
from inventory.foreign import escaped, printable
from scheduler.explain.alternatives import Why
from scheduler.explain.best_known import SEARCH, BestKnown
from scheduler.explain.details import Section, compact, describe_details
from scheduler.explain.explanation import Explanation
from scheduler.explain.worker_loads import WorkerLoad, count_text, overloaded_count, undetermined_count
from scheduler.placement_file import PlacementFile, TopologyPlacement
from scheduler.problem import Aim
from scheduler.toolkit.cost import Cost
from scheduler.toolkit.objective import aim_of

MAX_WIDTH = 1000
"""Characters; enough for every number."""


UNKNOWN = "not available"

COUNTED_BY = "Rates and loads are derived (rate, selectivities, costs), not measured."


def print_answer(answer: PlacementFile, color: bool = True) -> None:
    """Print `answer` on standard output: the slots of each topology, and the cost."""
    console = plain_console(color)
    for name, topology in answer.topologies.items():
        console.print(_slots_table(answer, name, topology))
        for line in _remarks(topology):
            console.print(f"  {printable(line)}")
        if topology.unassigned:
            console.print(f"  without a slot: {compact(topology.unassigned)}")
        console.print()
    console.print(_cost(answer))
    if answer.traffic:
        console.print(COUNTED_BY)
    if answer.freed:
        released = ", ".join(f"{worker.topology} on {worker.node}:{worker.slot}" for worker in answer.freed)
        console.print(f"released: {released}")


def _remarks(topology: TopologyPlacement) -> list[str]:
    """Return the scheduler's message and the note, unless it repeats the message."""
    note = topology.note or ""
    return [line for line in (topology.message, note if note not in topology.message else "") if line]


def _slots_table(answer: PlacementFile, name: str, topology: TopologyPlacement) -> Table:
    table = Table(title=f"{printable(name)}: {topology.status}", title_justify="left", title_style="bold")
    table.add_column("node")
    table.add_column("power", justify="right")
    table.add_column("slot", justify="right")
    table.add_column("executors", justify="right")
    table.add_column("which", overflow="fold")
    slots: dict[tuple[str, int], list[str]] = {}
    for assignment in topology.assignments:
        slots.setdefault((assignment.node, assignment.slot), []).append(assignment.executor)
    for node in answer.nodes:
        for at, slot in enumerate(sorted(index for where, index in slots if where == node.id)):
            executors = slots[node.id, slot]
            table.add_row(
                printable(node.id) if at == 0 else "",
                _number(node.computing_power, unknown=UNKNOWN) if at == 0 else "",
                str(slot),
                str(len(executors)),
                compact(executors),
            )
    return table


def _cost(answer: PlacementFile) -> Table:
    cost = answer.cost
    table = Table(title=f"{answer.scheduler}: cost", title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("communicating pairs between nodes", str(cost.inter_node_edges))
    table.add_row("observed tuples/s between nodes", _number(cost.inter_node_tuples_per_s, unknown=UNKNOWN))
    table.add_row("communicating pairs between workers of a node", str(cost.inter_worker_edges))
    table.add_row("nodes used", str(cost.nodes_used))
    table.add_row("slots used", str(cost.slots_used))
    table.add_row("load / capacity, standard deviation over nodes", _number(cost.load_stddev, 3, UNKNOWN))
    table.add_row("overloaded nodes", str(cost.overloaded_nodes))
    table.add_row("overloaded workers", count_text(cost.overloaded_workers, cost.undetermined_workers))
    aim = aim_of(answer.params)
    if aim is not None:
        table.add_row(f"{aim.objective}: {UNITS_OF[aim]}", _exact(cost.objective))
        table.add_row(f"lower bound of {aim.objective}", _exact(cost.lower_bound))
    table.add_row("time taken", f"{answer.elapsed_s * 1000:.1f} ms")
    return table


def print_comparison(outcomes: Sequence[PlacedProblem | PlacementRefused], color: bool = True) -> None:
    """Print a row per scheduler on standard output, in the given order, and why some placed nothing."""
    console = plain_console(color)
    table = _comparison(outcomes)
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)  # numbers are never cut
    console.print(table)
    answers = [outcome.answer for outcome in outcomes if isinstance(outcome, PlacedProblem)]
    if answers:
        console.print(_best_known(answers, _aim(outcomes)))
    if any(answer.traffic for answer in answers):
        console.print(COUNTED_BY)
    for outcome in outcomes:
        if isinstance(outcome, PlacementRefused):
            console.print(f"{outcome.scheduler} cannot place this: {printable(outcome.fault)}")
            continue
        for name, topology in outcome.answer.topologies.items():
            for line in _remarks(topology):
                console.print(f"{outcome.answer.scheduler}, {printable(name)}: {printable(line)}")


def _comparison(outcomes: Sequence[PlacedProblem | PlacementRefused]) -> Table:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)  # narrow enough for 80 columns
    observed = any(
        isinstance(outcome, PlacedProblem) and outcome.answer.cost.inter_node_tuples_per_s is not None
        for outcome in outcomes
    )
    table.add_column("scheduler", no_wrap=True)
    headings = ["W,\npairs", "inter-\nworker", "nodes", "slots", "balance", "over-\nloaded", "workers", "gap", "ms"]
    aim = _aim(outcomes)
    objective = [] if aim is None else [aim.objective.replace("-", "-\n")]
    for heading in [*objective, *(["W,\ntuples/s"] if observed else []), *headings]:
        table.add_column(heading, justify="right")
    table.add_column("status", no_wrap=True)
    for outcome in outcomes:
        if isinstance(outcome, PlacementRefused):
            table.add_row(outcome.scheduler, *["-"] * (len(objective + headings) + observed), "cannot")
            continue
        answer, cost = outcome.answer, outcome.answer.cost
        states = [topology.status for topology in answer.topologies.values()]
        if not any(topology.assignments for topology in answer.topologies.values()):
            blank = ["-"] * (len(objective + headings) + observed - 1)  # nothing is placed, so there is no cost
            table.add_row(answer.scheduler, *blank, f"{answer.elapsed_s * 1000:.1f}", "failed")
            continue
        table.add_row(
            answer.scheduler,
            *([_exact(cost.objective)] if objective else []),
            *([_number(cost.inter_node_tuples_per_s, 1)] if observed else []),
            str(cost.inter_node_edges),
            str(cost.inter_worker_edges),
            str(cost.nodes_used),
            str(cost.slots_used),
            _number(cost.load_stddev, 3),
            str(cost.overloaded_nodes),
            _workers(cost),
            _gap(answer),
            f"{answer.elapsed_s * 1000:.1f}",
            states[0] if len(set(states)) == 1 else ", ".join(states),
        )
    judged = "W" if aim is None else aim.objective
    caption = (
        "W: rate between nodes; inter-worker: pairs on one node; balance: deviation over nodes of load / capacity; "
        "overloaded: nodes that hold more than their capacity; workers: those that have more to do than a thread can, "
        "unknown without loads, + if not all are known; "
        f"gap: {judged} above that of the best known placement, "
        "- where not all executors are placed within the capacities"
    )
    if aim is not None:
        caption += f"; {aim.objective}: {UNITS_OF[aim]}"
    table.caption = caption
    table.caption_justify = "left"
    return table


def _workers(cost: Cost) -> str:
    """Return the number of overloaded workers, in a few characters."""
    if isinstance(cost.overloaded_workers, int):
        return f"{cost.overloaded_workers}{'+' * bool(cost.undetermined_workers)}"
    return "unknown"


UNITS_OF = {
    Aim("cost", "racks"): "rate times distance of the slots",
    Aim("cost", "links"): "rate times ms on the link",
    Aim("busiest-link", "racks"): "largest rate between two nodes",
    Aim("busiest-link", "links"): "largest rate between two nodes per Mbit/s",
    Aim("busiest-node", "racks"): "largest load / capacity of a node",
    Aim("busiest-node", "links"): "largest load / capacity of a node",
}
"""Objective -> its description."""


def _aim(outcomes: Sequence[PlacedProblem | PlacementRefused]) -> Aim | None:
    """Return the objective of a comparison, None for W."""
    answers = [outcome.answer for outcome in outcomes if isinstance(outcome, PlacedProblem)]
    return next((aim for answer in answers if (aim := aim_of(answer.params)) is not None), None)


def _exact(value: float | UnsetType | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None or value is UNSET else str(value)


def _gap(answer: PlacementFile) -> str:
    known = answer.best_known
    return f"{known.gap:.1%}" if isinstance(known, BestKnown) and known.gap is not None else "-"


def _best_known(answers: Sequence[PlacementFile], aim: Aim | None) -> str:
    """Return a line about the best known placement; all answers have the same."""
    known = next((answer.best_known for answer in answers if isinstance(answer.best_known, BestKnown)), None)
    if known is None:
        return "No placement within the capacities is known."
    found = "found by a search" if known.by == SEARCH else f"by {known.by}"
    proof = "the optimum, proven" if known.optimal else "not proven to be the optimum"
    value = f"W {_rounded(known.w)}" if aim is None else f"{aim.objective} {_exact(known.w)}"
    return f"Best known placement: {value}, {found}; {proof}."


def _number(value: float | None, digits: int = 1, unknown: str = "-") -> str:
    return unknown if value is None else f"{value:.{digits}f}"


MOST_NODES = 60
"""Maximum number of listed nodes."""


def print_account(placed: PlacedProblem, account: Explanation, color: bool = True) -> None:
    """Print on standard output the loads and links of the plan and the decisions of the algorithm."""
    console = plain_console(color)
    _print_titled(console, f"load against capacity, in {_UNITS[account.unit]}", _nodes(account))
    _print_left_out(console, len(_shown(account)) - MOST_NODES, "nodes")
    _print_workers(console, account.workers)
    console.print()
    rate = "pairs" if account.pairs is None else "tuples/s"
    if account.links:
        _print_titled(console, "heaviest links between nodes", _links(account, rate))
    else:
        console.print("nothing goes between nodes")
    if account.pairs:
        _print_titled(console, "heaviest executor pairs between nodes", _pairs(account))
    console.print()
    sections = describe_details(placed.problem, placed.answer.details, placed.plan.schedule)
    if sections:
        console.print(f"{placed.answer.scheduler}: decisions", style="bold")
    for section in sections:
        _print_section(console, section)
    if sections:
        console.print()
    _print_least(console, account, rate)


def _print_workers(console: Console, workers: Sequence[WorkerLoad]) -> None:
    """Print how many workers are overloaded, and which."""
    limited = next((worker.limit for worker in workers if worker.limit is not None), None)
    if limited is None:
        return
    console.print(f"  workers with more to do than their thread can, {limited:g} CPU points: ", end="")
    over = [worker for worker in workers if worker.overloaded]
    console.print(count_text(overloaded_count(workers), undetermined_count(workers)))
    for worker in over[:MOST_NODES]:
        where = printable(f"{worker.topology} on {worker.node}:{worker.slot}")
        console.print(f"    {where}: {_rounded(worker.load or 0.0)}, {worker.executors} executors")
    _print_left_out(console, len(over) - MOST_NODES, "workers")


def print_why(answer: PlacementFile, why: Why, color: bool = True) -> None:
    """Print on standard output what an executor would cost on every other node, and what forbids it there."""
    aim = aim_of(answer.params)
    name, shown = ("W", _rounded) if aim is None else (aim.objective, _exact)
    console = plain_console(color)
    place = "without a node" if why.node is None else f"on {why.node}"
    table = Table("node")
    table.add_column(name, justify="right")
    table.add_column("change", justify="right")
    table.add_column("forbidden by", overflow="fold")
    for each in why.alternatives[:MOST_NODES]:
        change = "-" if each.change is None else f"{'+' if each.change > 0 else ''}{shown(each.change)}"
        cost = "-" if each.w is None else shown(each.w)
        table.add_row(printable(each.node), cost, change, "; ".join(each.forbidden) or "-")
    now = "-" if why.w is None else shown(why.w)
    _print_titled(console, printable(f"{why.executor} of {why.topology}, {place}: {name} {now}; elsewhere"), table)
    _print_left_out(console, len(why.alternatives) - MOST_NODES, "nodes")


def _print_titled(console: Console, title: str, table: Table) -> None:
    """Print a table below its title; a title of the table itself would be wrapped at the table's width."""
    console.print(title, style="bold")
    console.print(table)


def _shown(account: Explanation) -> list[int]:
    """Return the indices of nodes with load, the fullest first."""
    hosts = account.nodes
    used = [at for at, host in enumerate(hosts) if host.executors or host.slots_others]
    fill = {at: _share(hosts[at].load + hosts[at].others_load, hosts[at].capacity) for at in used}
    return sorted(used, key=lambda at: (-fill[at], at))


def _share(load: float, capacity: float) -> float:
    return load / capacity if capacity else float("inf") if load else 0.0


def _nodes(account: Explanation) -> Table:
    table = Table()
    others = any(host.slots_others for host in account.nodes)
    memory = any(host.memory_mb is not None for host in account.nodes)
    table.add_column("node")
    for name in ("executors", "load", *(["others"] if others else []), "capacity", "full", "slots"):
        table.add_column(name, justify="right")
    if memory:
        table.add_column("memory, MB", justify="right")
    shown = _shown(account)
    for at in shown[:MOST_NODES]:
        host = account.nodes[at]
        load = host.load + host.others_load
        share = "-" if not host.capacity else f"{load / host.capacity:.0%}"
        table.add_row(
            printable(host.id),
            str(host.executors),
            _rounded(host.load),
            *([_rounded(host.others_load)] if others else []),
            _rounded(host.capacity),
            f"{share}, too much" if host.overloaded else share,
            f"{host.slots_used + host.slots_others} of {host.slots}",
            *([f"{_rounded(host.memory_mb or 0.0)} of {_rounded(host.memory_limit_mb)}"] if memory else []),
        )
    empty = sum(host.available for at, host in enumerate(account.nodes) if at not in set(shown))
    away = sum(not host.available for host in account.nodes)
    words = [f"empty nodes: {empty}"] if empty else []
    words += [f"not available: {away}"] if away else []
    table.caption = "; ".join(words) or None
    table.caption_justify = "left"
    return table


_UNITS = {"executors": "executors", "points": "CPU points (100 = one core)"}


def _links(account: Explanation, rate: str) -> Table:
    several = len({link.topology for link in account.links}) > 1
    table = Table()
    table.add_column("from")
    table.add_column("to")
    table.add_column(f"{rate} between nodes", justify="right")
    table.add_column("of", justify="right")
    table.add_column("share", justify="right")
    for link in account.links:
        before = f"{link.topology}/" if several else ""
        table.add_row(
            printable(before + link.source),
            printable(before + link.destination),
            _rounded(link.cut),
            _rounded(link.total),
            f"{link.cut / link.total:.0%}",
        )
    return table


def _pairs(account: Explanation) -> Table:
    table = Table()
    for name in ("executor", "node", "executor", "node"):
        table.add_column(name)
    table.add_column("tuples/s", justify="right")
    for pair in account.pairs or ():
        ends = (pair.source, pair.source_node, pair.destination, pair.destination_node)
        table.add_row(*map(printable, ends), _rounded(pair.tuples_per_s))
    return table


def _print_section(console: Console, section: Section) -> None:
    if not section.columns:
        console.print(f"  {section.title}: {escaped(section.text)}")
        return
    console.print(f"  {section.title}:")
    table = Table(show_header=any(section.columns))
    for name in section.columns:
        table.add_column(name, overflow="fold")
    for row in section.rows:
        table.add_row(*row)
    console.print(table)
    _print_left_out(console, section.left_out, "rows")


def _print_left_out(console: Console, count: int, what: str) -> None:
    if count > 0:
        console.print(f"  ... and {count} more {what}")


def _print_least(console: Console, account: Explanation, rate: str) -> None:
    least = account.least
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("this placement", _rounded(account.w))
    table.add_row("lower bound", _or_not(least.lower_bound))
    if least.optimum is None and least.best_found is not None:
        table.add_row("best placement found", _rounded(least.best_found))
    table.add_row("optimum", _or_not(least.optimum))
    if least.optimum and account.all_placed and account.capacities_kept:
        table.add_row("above the optimum", f"{account.w / least.optimum - 1:.1%}")
    _print_titled(console, f"W, {rate} between nodes", table)
    if least.note:
        console.print(f"  not computed: {printable(least.note)}")
    if not account.all_placed:
        console.print("  Not every executor has a slot, so W is too low; the other values are for all executors.")
    elif not account.capacities_kept and least.lower_bound is not None:
        console.print("  This placement exceeds a capacity; bound and optimum are for placements that do not.")


def _or_not(value: float | None) -> str:
    return "not computed" if value is None else _rounded(value)


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
