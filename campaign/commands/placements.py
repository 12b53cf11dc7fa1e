"""Commands that decide from files, without a cluster: `place` and `revise`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.commands.completion import complete_schedulers, inventories, scheduler_lists, topologies
from campaign.display.terminal import Settings
from campaign.place.place import (
    PlacedProblem,
    PlacementRefused,
    Round,
    compare_schedulers,
    listed_schedulers,
    place,
    status_of,
)
from inventory.documents import dump_json, read
from inventory.foreign import printable
from inventory.plugins import given
from inventory.reading import read_cluster
from inventory.values import MOST
from scheduler.explain.alternatives import Why
from scheduler.explain.explanation import Explanation
from scheduler.online.validation import make_online_scheduler
from scheduler.placement_file import to_json
from scheduler.registry import make_scheduler
from workloads.traffic import traffic_from_document
from workloads.workload import find_topology

if TYPE_CHECKING:
    from campaign.place.revise import Decision

PLACE_EXAMPLE = """\b
Examples:
  millrace place --cluster loopback --topology wordcount.yml --scheduler even
  millrace place --cluster lab.yml --topology a.yml --topology b.yml \\
      --scheduler top-storm --param alpha=0.5 --traffic observed.yml --json
  millrace place --cluster loopback --topology wordcount --scheduler i-scheduler --explain
  millrace place --cluster loopback --topology wordcount --scheduler even --why "split[0]"
  millrace place --cluster loopback --topology wordcount.yml --compare even,top-storm,i-scheduler
  millrace place --cluster loopback --load taxi.json --rate 500 --compare even,optimal
"""

PICTURES = "placements"


@click.command("place", epilog=PLACE_EXAMPLE)
@click.option(
    "--cluster",
    required=True,
    metavar="C",
    shell_complete=inventories,
    help="Cluster file, or name of a built-in inventory.",
)
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    metavar="T",
    shell_complete=topologies,
    help="Topology file, or name of a workload; several are placed in one round, in this order.",
)
@click.option(
    "--scheduler",
    metavar="NAME",
    shell_complete=complete_schedulers,
    help="See `millrace list schedulers`. With --compare: placed first, unless it is in that list.",
)
@click.option(
    "--compare",
    "compared",
    metavar="NAME,NAME,...",
    shell_complete=scheduler_lists,
    help="Run several schedulers on the same files; print one table, draw a picture of each placement.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="K=V",
    help="Parameter of the scheduler; overrides the file. With --compare: for all schedulers that have it.",
)
@click.option("--params-file", metavar="P", help="File with parameters, also nested ones.")
@click.option("--traffic", metavar="F", help="File with observed rates and loads.")
@click.option(
    "--load",
    metavar="F",
    help="Load document, as `millrace load` writes it: its topology is placed with rates and loads derived from costs.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True, max=MOST),
    metavar="N",
    help="Records per second of all sources of --load (default: those of the document).",
)
@click.option(
    "--explain", is_flag=True, help="Print loads, heaviest links, decisions of the algorithm, and W with its bounds."
)
@click.option(
    "--why",
    metavar="EXECUTOR",
    help="Print the cost on every other node, and what forbids it there: NAME[INDEX], or TOPOLOGY/NAME[INDEX].",
)
@click.option(
    "--pictures",
    metavar="DIR",
    help=f"Folder for the pictures of --compare, NAME.svg (default: {PICTURES}; with --json, none by default).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output; of --compare, a list.")
@click.pass_obj
def place_command(
    settings: Settings,
    cluster: str,
    topologies: tuple[str, ...],
    scheduler: str | None,
    compared: str | None,
    params: tuple[str, ...],
    params_file: str | None,
    traffic: str | None,
    load: str | None,
    rate: float | None,
    explain: bool,
    why: str | None,
    pictures: str | None,
    as_json: bool,
) -> int:
    """Compute a placement from files and print its cost.

    A topology that cannot be placed is a valid result: its status is printed, and the exit status is 0.
    """
    if scheduler is None and compared is None:
        raise click.UsageError("give --scheduler NAME, or --compare NAME,NAME,...")
    if pictures is not None and compared is None:
        raise click.UsageError("--pictures is the folder of --compare, which was not given")
    if why is not None and compared is not None:
        raise click.UsageError("--why is about one placement: give --scheduler NAME instead of --compare")
    if not topologies and load is None:
        raise click.UsageError("Missing option '--topology' (or '--load').")
    if rate is not None and load is None:
        raise click.UsageError("--rate is the rate of a load document: give --load F, too")
    if load is not None and traffic is not None:
        raise click.UsageError("--traffic has observed rates, --load derives them: give one of the two")
    sources = [*([read(params_file).origin] if params_file is not None else []), given(params)]
    ready = None
    if scheduler is not None and compared is None:
        ready = make_scheduler(scheduler, *sources)
    placed = [find_topology(each) for each in topologies]
    known = traffic_from_document(read(traffic)) if traffic is not None else None
    if load is not None:
        from engines.replay import derived_load

        described, known = derived_load(load, rate)
        placed.append(described)
    files = Round(read_cluster(cluster), placed, known, explain, why, is_derived=load is not None)
    if ready is not None:
        _show(place(ready, files), as_json, settings.color)
        return 0
    outcomes = compare_schedulers(listed_schedulers(scheduler, compared or ""), files, *sources)
    if as_json:
        click.echo(dump_json([outcome.document for outcome in outcomes]), nl=False)
    else:
        _show_all(outcomes, settings.color)
    if pictures is not None or not as_json:
        from campaign.place.svg import draw

        for path in draw(outcomes, Path(pictures or PICTURES)):
            click.echo(printable(f"picture: {path}"), err=as_json)
    return status_of(outcomes)


def _show(placed: PlacedProblem, as_json: bool, color: bool) -> None:
    if as_json:
        click.echo(to_json(placed.answer), nl=False)
        return
    from campaign.display.placement_tables import print_answer  # rich takes long to import

    print_answer(placed.answer, color)
    if isinstance(placed.answer.account, Explanation):
        from campaign.display.placement_tables import print_account

        print_account(placed, placed.answer.account, color)
    if isinstance(placed.answer.why, Why):
        from campaign.display.placement_tables import print_why

        print_why(placed.answer, placed.answer.why, color)


def _show_all(outcomes: Sequence[PlacedProblem | PlacementRefused], color: bool) -> None:
    from campaign.display.placement_tables import print_comparison

    print_comparison(outcomes, color)
    for outcome in outcomes:
        if isinstance(outcome, PlacedProblem) and isinstance(outcome.answer.account, Explanation):
            from campaign.display.placement_tables import print_account

            click.echo()
            print_account(outcome, outcome.answer.account, color)


REVISE_EXAMPLE = """\b
Examples:
  millrace revise --cluster lab.yml --topology a.yml --observation observed.json --scheduler i-scheduler
  millrace revise --cluster lab.yml --topology a.yml --observation at30.json --observation at35.json \\
      --scheduler er-stream --param alpha=0 --json
  millrace revise --replay results/demo/latest/runs/001-wordcount-er-stream-r1/decisions.jsonl
"""


@click.command("revise", epilog=REVISE_EXAMPLE)
@click.option(
    "--cluster",
    default="",
    metavar="C",
    shell_complete=inventories,
    help="Cluster file, or name of a built-in inventory.",
)
@click.option(
    "--topology", default="", metavar="T", shell_complete=topologies, help="Topology file, or name of a workload."
)
@click.option(
    "--observation",
    "observations",
    multiple=True,
    metavar="O",
    help="Observation file; several are given to the same scheduler, which may remember, in this order.",
)
@click.option(
    "--scheduler",
    default="",
    metavar="NAME",
    shell_complete=complete_schedulers,
    help="An online one of `millrace list schedulers`.",
)
@click.option("--param", "params", multiple=True, metavar="K=V", help="Parameter of the scheduler; overrides the file.")
@click.option("--params-file", metavar="P", help="File with parameters, also nested ones.")
@click.option(
    "--replay", metavar="F", help="decisions.jsonl of a run: make its decisions again, and compare; no other input."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def revise_command(
    settings: Settings,
    cluster: str,
    topology: str,
    observations: tuple[str, ...],
    scheduler: str,
    params: tuple[str, ...],
    params_file: str | None,
    replay: str | None,
    as_json: bool,
) -> int:
    """Compute revisions of a running topology from observations.

    No change is a valid result: its reason is printed, and the exit status is 0. With --replay, an answer that differs
    from that of the run is an error.
    """
    from campaign.place.revise import Decision, DecisionReplay, ObservedRound, decide
    from scheduler.online.observation import observation_of

    files = {"--cluster": cluster, "--topology": topology, "--observation": observations, "--scheduler": scheduler}
    if replay is not None:
        for option, value in {**files, "--param": params, "--params-file": params_file}.items():
            if value:
                raise click.UsageError(f"--replay has all inputs of a run, so there is no {option}")
        replayed = DecisionReplay(replay)
        decided = replayed.decide()
    else:
        for option, value in files.items():
            if not value:
                raise click.UsageError(f"Missing option '{option}'.")
        sources = [*([read(params_file).origin] if params_file is not None else []), given(params)]
        ready = make_online_scheduler(scheduler, None, *sources)
        observed = [observation_of(read(path)) for path in observations]
        decided = decide(ready, ObservedRound(read_cluster(cluster), find_topology(topology), observed))
    decisions: list[Decision] = []
    for decision in decided:
        decisions.append(decision)
        if not as_json:
            click.echo("\n".join(_in_words(decision)))
    if as_json:
        # One document for one observation.
        click.echo(dump_json(decisions[0] if len(decisions) == 1 else decisions), nl=False)
    return 0


def _in_words(decision: "Decision") -> list[str]:
    """Return a line for the decision, then one for every change."""
    revision = decision.revision
    head = f"{decision.at_s:g} s:"
    if revision is None:
        return [f"{head} no change{': ' * bool(decision.text)}{printable(decision.text)}"]
    changes = [
        *(
            f"  {printable(m.executor)}: {printable(m.source.node)}/{m.source.index} -> "
            f"{printable(m.target.node)}/{m.target.index}"
            for m in revision.moves
        ),
        *(f"  {printable(component)}: {size} executors" for component, size in revision.parallelism.items()),
        *(f"  {printable(name)}: {printable(slot.node)}/{slot.index}" for name, slot in revision.added.items()),
        *(
            f"  {printable(node)}: {'clock of the agenda' if hertz is None else f'{hertz / 1e9:g} GHz'}"
            for node, hertz in revision.frequencies_hz.items()
        ),
    ]
    return [f"{head} {revision.reason}: {printable(decision.text)}", *changes]
