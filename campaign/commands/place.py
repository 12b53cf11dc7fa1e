"""`millrace place`: who would run where, without a cluster."""

from time import perf_counter

import click

from campaign.cli import Settings
from inventory.documents import Document, read
from inventory.finding import find_inventory
from inventory.flops import LackingNodeError
from inventory.params import given
from scheduler.answer import answer_of, to_json
from scheduler.checking import Checked
from scheduler.posing import pose
from scheduler.problem import Plan, Problem
from scheduler.registry import make_scheduler

EXAMPLE = """\b
Examples:
  millrace place --cluster loopback --topology wordcount.yml --scheduler even
  millrace place --cluster lab.yml --topology a.yml --topology b.yml \\
      --scheduler top-storm --param alpha=0.5 --traffic observed.yml --json
"""


@click.command("place", epilog=EXAMPLE)
@click.option("--cluster", required=True, metavar="C", help="Cluster file, or the name of a shipped inventory.")
@click.option(
    "--topology",
    "topologies",
    required=True,
    multiple=True,
    metavar="T",
    help="Topology file; several are placed in one round, in this order.",
)
@click.option("--scheduler", required=True, metavar="NAME", help="See `millrace list schedulers`.")
@click.option(
    "--param", "params", multiple=True, metavar="K=V", help="A parameter of the scheduler; wins over the file."
)
@click.option("--params-file", metavar="P", help="File with parameters, for nested ones.")
@click.option("--traffic", metavar="F", help="File with observed rates and loads.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(
    settings: Settings,
    cluster: str,
    topologies: tuple[str, ...],
    scheduler: str,
    params: tuple[str, ...],
    params_file: str | None,
    traffic: str | None,
    as_json: bool,
) -> None:
    """Compute a placement from files and say what it costs.

    A topology that cannot be placed is an answer too: its status says so, and the exit status stays 0.
    """
    sources = [read(params_file)] if params_file is not None else []
    ready = make_scheduler(scheduler, *((document, ()) for document in [*sources, given(params)]))
    nodes = read(find_inventory(cluster))
    problem = pose(
        ready.needs, nodes, [read(path) for path in topologies], read(traffic) if traffic is not None else None
    )
    start = perf_counter()
    plan = _placed(ready, problem, nodes)
    answer = answer_of(ready.name, ready.params, problem, plan, perf_counter() - start)
    if as_json:
        click.echo(to_json(answer), nl=False)
        return
    from campaign.placement_table import print_answer  # rich is only worth its start-up time for people

    print_answer(answer, settings.color)


def _placed(scheduler: Checked, problem: Problem, cluster: Document) -> Plan:
    try:
        return scheduler.place(problem)
    except LackingNodeError as fault:
        at = [node.id for node in problem.cluster.nodes].index(fault.node)
        raise cluster.error(("nodes", at), str(fault)) from None
