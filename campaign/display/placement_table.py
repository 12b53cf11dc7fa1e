"""Tables of a placement."""

from rich.table import Table

from campaign.display.console import plain_console
from inventory.foreign import printable
from scheduler.explain.details import compact
from scheduler.placement_file import PlacementFile, TopologyPlacement


def print_answer(answer: PlacementFile, color: bool = True) -> None:
    """Print `answer` on standard output: the slots of each topology, and the cost."""
    console = plain_console(color)
    for name, topology in answer.topologies.items():
        console.print(_table(answer, name, topology))
        if topology.message:
            console.print(f"  {printable(topology.message)}")
        if topology.unassigned:
            console.print(f"  without a slot: {compact(topology.unassigned)}")
        console.print()
    console.print(_cost(answer))
    if answer.freed:
        released = ", ".join(f"{worker.topology} on {worker.node}:{worker.slot}" for worker in answer.freed)
        console.print(f"released: {released}")


def _table(answer: PlacementFile, name: str, topology: TopologyPlacement) -> Table:
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
                _number(node.computing_power) if at == 0 else "",
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
    table.add_row("observed tuples/s between nodes", _number(cost.inter_node_tuples_per_s))
    table.add_row("communicating pairs between workers of a node", str(cost.inter_worker_edges))
    table.add_row("nodes used", str(cost.nodes_used))
    table.add_row("slots used", str(cost.slots_used))
    table.add_row("load / capacity, standard deviation over nodes", _number(cost.load_stddev, 3))
    table.add_row("time taken", f"{answer.elapsed_s * 1000:.1f} ms")
    return table


def _number(value: float | None, digits: int = 1) -> str:
    return "not available" if value is None else f"{value:.{digits}f}"
