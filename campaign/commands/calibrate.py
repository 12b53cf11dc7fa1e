"""`millrace calibrate`: the energy model of one node, fitted to its meter readings."""

import click

from agents.agent.idle_baseline import MOST_LOAD
from campaign.admin.calibrate_node import Calibration, calibrate
from campaign.admin.operator_callbacks import operator_callbacks
from campaign.commands.options import Seconds
from campaign.display.progress_bar import progress_bar
from campaign.display.settings import Settings
from inventory.documents import dump_json
from inventory.foreign import printable

EXAMPLE = """\b
Examples:
  millrace calibrate inventory/lab.yml n1
  millrace calibrate inventory/lab.yml n1 --step-s 60 --json
"""


@click.command(epilog=EXAMPLE)
@click.argument("inventory")
@click.argument("node")
@click.option(
    "--settle-s",
    type=Seconds(0),
    default=10.0,
    show_default=True,
    help="Seconds without readings at the start of each step; more for a meter with lag.",
)
@click.option(
    "--step-s",
    type=Seconds(0, min_open=True),
    default=20.0,
    show_default=True,
    help="Seconds of readings in each step; more for a coarse meter.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(settings: Settings, inventory: str, node: str, settle_s: float, step_s: float, as_json: bool) -> None:
    """Fit the energy model of one node to measurements.

    The model of NODE in INVENTORY is P = p_s + p_d (f/f_ref)^kappa u. The node is metered at loads of 0, 25, 50, 75
    and 100 %, and at three clocks if they can be set. That takes seven minutes; nothing else should run on the node.
    If a program of yours reads the meter (`external`), two more minutes with a load that switches on and off measure
    the meter's lag. Clocks are restored at the end and after Ctrl-C. The result is saved beside the inventory and
    used as the node's `power` and `meter_lag` unless the inventory sets them. A node without a measured energy source
    is refused (exit status 3).
    """
    with progress_bar(f"calibrating {node}", settings.quiet, settings.color) as show_progress:
        result = calibrate(inventory, node, settle_s, step_s, operator_callbacks(settings), show_progress)
    if as_json:
        click.echo(dump_json({**result.document(), "file": str(result.path)}), nl=False)
    else:
        _show(result)


def _show(result: Calibration) -> None:
    for number, step in enumerate(result.found.steps):
        clock = f"{step.hz / 1e9:.2f} GHz" if step.hz else "clock not known"
        held = "  held out" if number in result.fit.held_out else ""
        watts = f"{step.watts:8.3f} W +- {step.bound_watts:.3f} W ({printable(result.found.source)})"
        click.echo(f"  {step.busy:6.1%} busy, {clock}: {watts}{held}")
    model = result.fit.model
    kappa = f"{model.kappa:g}" if result.fit.kappa_is_fitted else f"{model.kappa:g} (not fitted: one clock only)"
    click.secho(f"  p_s {model.p_s:.3f} W, p_d {model.p_d:.3f} W, kappa {kappa}", bold=True)
    if model.mape is not None:
        click.echo(f"  error: {result.fit.rmse_watts:.3f} W (RMSE), {model.mape:.1%} on the steps held out")
    lag = result.found.lag
    if lag is not None:
        margin = f"+-{lag.margin_s:.2f} s (correlation of its power with the load: {lag.correlation:.2f})"
        click.echo(f"  meter lag: {lag.lag_s:.2f} s {margin}")
    elif result.found.why_no_lag:
        click.secho(f"  meter lag is unknown: {printable(result.found.why_no_lag)}", fg="yellow")
    if result.background > MOST_LOAD:
        warning = f"  {result.background:.0%} of the CPUs were busy without a load: something else ran; calibrate again"
        click.secho(warning, fg="yellow")
    if result.found.clocks:
        click.echo(printable(f"  {result.found.clocks}"))
    click.echo(printable(f"  saved in {result.path}"))
