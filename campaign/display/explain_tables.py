"""Tables that explain a plan: `millrace place --explain`."""

from rich.console import Console
from rich.table import Table

from campaign.display.console import plain_console
from campaign.place.place import Placed
from inventory.foreign import escaped, printable
from scheduler.explain import Explanation
from scheduler.explain.details import Section, describe_details

MOST_NODES = 60
"""Maximum number of listed nodes."""


def print_account(placed: Placed, account: Explanation, color: bool = True) -> None:
    """Print on standard output the loads and links of the plan and the decisions of the algorithm."""
    console = plain_console(color)
    _print_titled(console, f"load against capacity, in {_UNITS[account.unit]}", _nodes(account))
    _print_left_out(console, len(_shown(account)) - MOST_NODES, "nodes")
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
            _number(host.load),
            *([_number(host.others_load)] if others else []),
            _number(host.capacity),
            f"{share}, too much" if host.overloaded else share,
            f"{host.slots_used + host.slots_others} of {host.slots}",
            *([f"{_number(host.memory_mb or 0.0)} of {_number(host.memory_limit_mb)}"] if memory else []),
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
            _number(link.cut),
            _number(link.total),
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
        table.add_row(*map(printable, ends), _number(pair.tuples_per_s))
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
    table.add_row("this placement", _number(account.w))
    table.add_row("lower bound", _or_not(least.lower_bound))
    if least.optimum is None and least.best_found is not None:
        table.add_row("best placement found", _number(least.best_found))
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
    return "not computed" if value is None else _number(value)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
