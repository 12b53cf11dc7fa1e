"""Table of several schedulers on the same round: `millrace place --compare`."""

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from campaign.display.console import plain_console
from campaign.place.place import Placed, PlacementRefused
from inventory.foreign import printable
from scheduler.explain.node_load import loads_by_node

MAX_WIDTH = 1000
"""Characters; enough for every number."""


def print_comparison(outcomes: Sequence[Placed | PlacementRefused], color: bool = True) -> None:
    """Print a row per scheduler on standard output, in the given order, and why some placed nothing."""
    console = plain_console(color)
    table = _table(outcomes)
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)  # numbers are never cut
    console.print(table)
    for outcome in outcomes:
        if isinstance(outcome, PlacementRefused):
            console.print(f"{outcome.scheduler} cannot place this: {printable(outcome.fault)}")
            continue
        for name, topology in outcome.answer.topologies.items():
            if topology.message:
                console.print(f"{outcome.answer.scheduler}, {printable(name)}: {printable(topology.message)}")


def _table(outcomes: Sequence[Placed | PlacementRefused]) -> Table:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)  # narrow enough for 80 columns
    observed = any(
        isinstance(outcome, Placed) and outcome.answer.cost.inter_node_tuples_per_s is not None for outcome in outcomes
    )
    table.add_column("scheduler", no_wrap=True)
    headings = ["W,\npairs", "inter-\nworker", "nodes", "slots", "balance", "over-\nloaded", "ms"]
    for heading in [*(["W,\ntuples/s"] if observed else []), *headings]:
        table.add_column(heading, justify="right")
    table.add_column("status", no_wrap=True)
    for outcome in outcomes:
        if isinstance(outcome, PlacementRefused):
            table.add_row(outcome.scheduler, *["-"] * (len(headings) + observed), "cannot")
            continue
        answer, cost = outcome.answer, outcome.answer.cost
        states = [topology.status for topology in answer.topologies.values()]
        if not any(topology.assignments for topology in answer.topologies.values()):
            blank = ["-"] * (len(headings) + observed - 1)  # nothing is placed, so there is no cost
            table.add_row(answer.scheduler, *blank, f"{answer.elapsed_s * 1000:.1f}", "failed")
            continue
        table.add_row(
            answer.scheduler,
            *([_number(cost.inter_node_tuples_per_s, 1)] if observed else []),
            str(cost.inter_node_edges),
            str(cost.inter_worker_edges),
            str(cost.nodes_used),
            str(cost.slots_used),
            _number(cost.load_stddev, 3),
            str(sum(host.overloaded for host in loads_by_node(outcome.problem, outcome.plan))),
            f"{answer.elapsed_s * 1000:.1f}",
            states[0] if len(set(states)) == 1 else ", ".join(states),
        )
    caption = (
        "W: rate between nodes; inter-worker: pairs on one node; balance: deviation over nodes of load / capacity; "
        "overloaded: nodes that hold more than their capacity"
    )
    table.caption = caption
    table.caption_justify = "left"
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
