"""`millrace calibrate`: the energy model of one node, fitted to what its meters say."""

import click

from agents.agent.idle_baseline import MOST_LOAD
from campaign.admin.calibrate_node import Calibration, calibrate
from campaign.admin.desk import operator_at
from campaign.commands.options import Seconds
from campaign.display.progress_bar import share_done
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
    help="How long each step settles; longer for a meter that lags behind.",
)
@click.option(
    "--step-s",
    type=Seconds(0, min_open=True),
    default=20.0,
    show_default=True,
    help="How long each step is metered; longer for a coarse meter.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(settings: Settings, inventory: str, node: str, settle_s: float, step_s: float, as_json: bool) -> None:
    """Fit the energy model of NODE of INVENTORY: P = p_s + p_d (f/f_ref)^kappa u.

    The node is metered at loads of 0, 25, 50, 75 and 100 %, at three clocks where they can be set; that takes seven
    minutes, in which nothing else should run there. A meter that is read by a program of yours (`external`) is found
    out for two minutes more, by a load that goes on and off: how late its word is. Clocks are put back at the end, and
    after Ctrl-C. The result is kept beside the inventory and taken for the node's `power` and `meter_lag` where the
    inventory does not state them. A node without a measured source of energy is refused (exit status 3).
    """
    with share_done(f"calibrating {node}", settings.quiet, settings.color) as tell:
        result = calibrate(inventory, node, settle_s, step_s, operator_at(settings), tell)
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
        sure = f"+-{lag.margin_s:.2f} s (correlation of its power with the load: {lag.correlation:.2f})"
        click.echo(f"  the meter is {lag.lag_s:.2f} s late, {sure}")
    elif result.found.why_no_lag:
        click.secho(f"  how late the meter is could not be found: {printable(result.found.why_no_lag)}", fg="yellow")
    if result.background > MOST_LOAD:
        told = f"  {result.background:.0%} of the CPUs were busy without a load: something else ran; calibrate again"
        click.secho(told, fg="yellow")
    if result.found.clocks:
        click.echo(printable(f"  {result.found.clocks}"))
    click.echo(printable(f"  kept in {result.path}"))
