"""Commands for the hosts of an inventory: `provision`, `restore`, `verify`, `calibrate` and `exec`."""

import asyncio
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from campaign.commands.completion import inventories
from campaign.commands.options import Seconds
from campaign.display.terminal import Settings, progress_bar
from inventory.documents import dump_json, read
from inventory.errors import InputError, RunError, nearest
from inventory.foreign import printable
from inventory.reading import read_cluster, read_hosts

if TYPE_CHECKING:
    from campaign.admin.calibrate_node import ModelCalibration

force_option = click.option(
    "--force", is_flag=True, help="Change hosts that a campaign uses; its measurements are then worthless."
)

PROVISION_EXAMPLE = """\b
Examples:
  millrace provision inventory/lab.yml
  millrace provision inventory/lab.yml --check
  millrace provision inventory/lab.yml -- --limit n1 --ask-become-pass
"""


@click.command("provision", epilog=PROVISION_EXAMPLE)
@click.argument("inventory", shell_complete=inventories)
@click.argument("options", nargs=-1, metavar="[-- ANSIBLE_OPTIONS...]")
@click.option("--check", is_flag=True, help="Print what would change; change nothing.")
@force_option
@click.pass_obj
def provision_command(settings: Settings, inventory: str, options: tuple[str, ...], check: bool, force: bool) -> None:
    """Set up the hosts of an inventory and gather their facts.

    The hosts become the cluster that INVENTORY describes. Everything is saved on the host before it is changed;
    `millrace restore` restores it. Settings that a host does not support are refused before any host is changed, and
    so are hosts that a campaign uses. A second call changes nothing.

    The same as: ansible-playbook -i INVENTORY ansible/provision.yml
    """
    from campaign.admin.playbook import Choice, play

    play("provision", read_hosts(inventory, options), Choice(check, options, force=force), settings)


RESTORE_EXAMPLE = """\b
Examples:
  millrace restore inventory/lab.yml
  millrace restore inventory/lab.yml --check
  millrace restore inventory/lab.yml -- --limit n1
"""


@click.command("restore", epilog=RESTORE_EXAMPLE)
@click.argument("inventory", shell_complete=inventories)
@click.argument("options", nargs=-1, metavar="[-- ANSIBLE_OPTIONS...]")
@click.option("--check", is_flag=True, help="Print what would change; change nothing.")
@force_option
@click.pass_obj
def restore_command(settings: Settings, inventory: str, options: tuple[str, ...], check: bool, force: bool) -> None:
    """Undo provisioning on the hosts of an inventory.

    Everything that provisioning changed on the hosts of INVENTORY is restored. This works at any time, also after an
    interrupted provisioning or a reboot; only while a campaign uses the hosts it is refused. Packages stay installed
    unless the inventory sets `millrace_remove_packages: true`. A second call changes nothing.

    The same as: ansible-playbook -i INVENTORY ansible/restore.yml
    """
    from campaign.admin.playbook import Choice, play
    from controller.emulation.cluster import is_emulated, running_cluster

    hosts = read_hosts(inventory, options)
    if is_emulated(hosts) and running_cluster(hosts, as_asked=False) is None:
        click.echo(f"no emulated cluster of {printable(hosts.path)} is up: nothing to restore", err=True)
        return
    play("restore", hosts, Choice(check, options, force=force), settings)


VERIFY_EXAMPLE = """\b
Examples:
  millrace verify inventory/lab.yml
  millrace verify inventory/lab.yml --json -- --limit n1
"""

Value = float | str | bool | None


class Measurement(Struct, frozen=True):
    """Result of one measurement on `node` or, for links, from `node` to `to`; None is an unknown value."""

    node: str
    to: str | None
    what: str
    asked: Value
    got: Value
    unit: str | None
    ok: bool


class Verified(Struct, frozen=True):
    """All measurements, and whether all of them match the inventory."""

    ok: bool
    checks: tuple[Measurement, ...]


@click.command("verify", epilog=VERIFY_EXAMPLE)
@click.argument("inventory", shell_complete=inventories)
@click.argument("options", nargs=-1, metavar="[-- ANSIBLE_OPTIONS...]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def verify_command(settings: Settings, inventory: str, options: tuple[str, ...], as_json: bool) -> int:
    """Measure whether hosts match their inventory.

    Cores, CPU clocks, links, limits and the offset of the system clock are measured on the hosts of INVENTORY. The
    exit status is 1 if a value differs by more than its tolerance.

    The same as: ansible-playbook -i INVENTORY ansible/verify.yml
    """
    from campaign.admin.playbook import Choice, play

    hosts = read_hosts(inventory, options)
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        file = Path(folder) / "checks.json"
        choice = Choice(options=options, variables={"millrace_verify_file": str(file)}, only_errors=as_json)
        fault = None
        try:
            play("verify", hosts, choice, settings)
        except RunError as failed:
            fault = failed
        if not file.is_file():
            raise fault or RunError("verify: the playbook succeeded without measuring anything")
        verified = read(file).convert(Verified)
    if as_json:
        click.echo(dump_json(verified), nl=False)
    else:
        _print_measurements(verified)
    if fault is not None and verified.ok:
        raise fault
    return 0 if verified.ok else 1


def _print_measurements(verified: Verified) -> None:
    rows: list[Sequence[str]] = [("node", "to", "what", "asked", "got", "unit", "")]
    for check in verified.checks:
        plain = (check.node, check.to, check.what, check.asked, check.got, check.unit, "ok" if check.ok else "NOT OK")
        rows.append([_cell(value) for value in plain])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Value) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else printable(value)


CALIBRATE_EXAMPLE = """\b
Examples:
  millrace calibrate inventory/lab.yml n1
  millrace calibrate inventory/lab.yml n1 --step-s 60 --json
"""


@click.command("calibrate", epilog=CALIBRATE_EXAMPLE)
@click.argument("inventory", shell_complete=inventories)
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
def calibrate_command(
    settings: Settings, inventory: str, node: str, settle_s: float, step_s: float, as_json: bool
) -> None:
    """Fit the energy model of one node to measurements.

    The model of NODE in INVENTORY is P = p_s + p_d (f/f_ref)^kappa u. The node is metered at loads of 0, 25, 50, 75
    and 100 %, and at three clocks if they can be set. That takes seven minutes; nothing else should run on the node.
    If a program of yours reads the meter (`external`), two more minutes with a load that switches on and off measure
    the meter's lag. Clocks are restored at the end and after Ctrl-C. The result is saved beside the inventory and
    used as the node's `power` and `meter_lag` unless the inventory sets them. A node without a measured energy source
    is refused (exit status 3).
    """
    from campaign.admin.calibrate_node import run_calibration
    from campaign.commands.options import operator_callbacks

    with progress_bar(f"calibrating {node}", settings.quiet, settings.color) as show_progress:
        calibration = run_calibration(inventory, node, settle_s, step_s, operator_callbacks(settings), show_progress)
    if as_json:
        click.echo(dump_json({**calibration.document(), "file": str(calibration.path)}), nl=False)
    else:
        _show_calibration(calibration)


def _show_calibration(calibration: "ModelCalibration") -> None:
    from agents.agent.idle_baseline import MOST_LOAD

    for number, step in enumerate(calibration.found.steps):
        clock = f"{step.hz / 1e9:.2f} GHz" if step.hz else "clock not known"
        held = "  held out" if number in calibration.fit.held_out else ""
        watts = f"{step.watts:8.3f} W +- {step.bound_watts:.3f} W ({printable(calibration.found.source)})"
        click.echo(f"  {step.busy:6.1%} busy, {clock}: {watts}{held}")
    model = calibration.fit.model
    kappa = f"{model.kappa:g}" if calibration.fit.kappa_is_fitted else f"{model.kappa:g} (not fitted: one clock only)"
    click.secho(f"  p_s {model.p_s:.3f} W, p_d {model.p_d:.3f} W, kappa {kappa}", bold=True)
    if model.mape is not None:
        click.echo(f"  error: {calibration.fit.rmse_watts:.3f} W (RMSE), {model.mape:.1%} on the steps held out")
    lag = calibration.found.lag
    if lag is not None:
        margin = f"+-{lag.margin_s:.2f} s (correlation of its power with the load: {lag.correlation:.2f})"
        click.echo(f"  meter lag: {lag.lag_s:.2f} s {margin}")
    elif calibration.found.why_no_lag:
        click.secho(f"  meter lag is unknown: {printable(calibration.found.why_no_lag)}", fg="yellow")
    if calibration.background > MOST_LOAD:
        warning = (
            f"  {calibration.background:.0%} of the CPUs were busy without a load: something else ran; calibrate again"
        )
        click.secho(warning, fg="yellow")
    if calibration.found.clocks:
        click.echo(printable(f"  {calibration.found.clocks}"))
    click.echo(printable(f"  saved in {calibration.path}"))


EXEC_EXAMPLE = """\b
Example:
  millrace exec lab.yml n1 -- uname -r
"""

SIGNALLED = 128


@click.command("exec", epilog=EXEC_EXAMPLE)
@click.argument("inventory", shell_complete=inventories)
@click.argument("node")
@click.argument("command_", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(inventory: str, node: str, command_: Sequence[str]) -> int:
    """Run a command on one node of an inventory.

    Arguments, input, output and exit status are passed on unchanged. The command runs on NODE of INVENTORY as
    `millrace_user`, the user of campaigns. Nodes of a cluster file are this host. Nodes of an emulated cluster can be
    reached while the cluster is up.
    """
    cluster = read_cluster(inventory)
    if cluster.hosts is not None:
        hosts = cluster.hosts.by_name
        _check_node(inventory, node, hosts)
        from controller.emulation.cluster import inside_network_of
        from controller.ssh.program import execute

        with inside_network_of(cluster.hosts):
            return asyncio.run(execute(hosts[node], command_))
    _check_node(inventory, node, cluster.value.by_id)
    try:
        status = subprocess.run(command_, check=False).returncode
    except OSError as fault:
        raise InputError(f"{command_[0]}: {fault.strerror}") from None
    return status if status >= 0 else SIGNALLED - status


def _check_node(inventory: str, node: str, nodes: Collection[str]) -> None:
    if node not in nodes:
        raise InputError(f"{inventory}: has no node {node!r}{nearest(node, nodes)}")
