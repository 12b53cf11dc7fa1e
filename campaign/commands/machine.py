"""Commands for the machine on which they run: `doctor`, `meter`, `record-sysfs` and `clean`."""

import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agents.host_files import Status
from agents.power.reader import ROOT_VARIABLE, MeteredHost
from campaign.commands.completion import inventories
from campaign.commands.options import Seconds
from campaign.display.terminal import Settings, progress_bar
from controller.host.signals import interrupted_once
from inventory.documents import dump_json
from inventory.errors import InputError, RunError
from inventory.foreign import printable
from inventory.times import NS

if TYPE_CHECKING:
    from agents.power.meter import Metered
    from campaign.admin.doctor import ZoneStatus
    from campaign.runner.clean import UpCluster

sysfs_option = click.option(
    "--sysfs",
    "root",
    metavar="ROOT",
    default="/",
    envvar=ROOT_VARIABLE,
    help=f"Folder to use as /, with sys and proc in it; the environment variable {ROOT_VARIABLE} does the same.",
)


def metered_host(root: str) -> MeteredHost:
    """Return the host whose files are below `root`.

    Raises:
        InputError: there is no such folder.
    """
    if not Path(root).is_dir():
        raise InputError(f"--sysfs {root}: there is no such folder")
    return MeteredHost(Path(root).resolve())


DOCTOR_EXAMPLE = """\b
Example:
  millrace doctor
"""

CHECK, STATUS = 12, 12
DOMAIN, ROLE, PART = 24, 10, 28
COLOURS: dict[Status, str] = {"ok": "green", "absent": "yellow", "denied": "red", "unreadable": "red"}


@click.command("doctor", epilog=DOCTOR_EXAMPLE)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@sysfs_option
def doctor_command(as_json: bool, root: str) -> None:
    """Report what this machine supports.

    Energy sources, Java, Spark, SSH, CPU control, links, cgroups and the clock are examined; nothing is changed.
    """
    from campaign.admin.doctor import diagnose

    diagnosis = diagnose(metered_host(root))
    if as_json:
        click.echo(dump_json(diagnosis), nl=False)
        return
    _print_statuses("energy", ((r.reader, r.status, r.reason) for r in diagnosis.power.readers))
    primary = diagnosis.power.primary
    click.echo(f"  primary: {primary}\n" if primary else "  no energy source on this host: energy is missing\n")
    if diagnosis.power.zones:
        _print_zones(diagnosis.power.zones)
    _print_statuses("host", ((c.check, c.status, c.reason) for c in diagnosis.checks))


def _print_statuses(title: str, rows: Iterable[tuple[str, Status, str]]) -> None:
    click.secho(title, bold=True)
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    for name, status, reason in rows:
        first, *rest = textwrap.wrap(printable(reason), max(20, width - CHECK - STATUS - 2), break_on_hyphens=False)
        click.echo(f"  {name:<{CHECK}}{click.style(f'{status:<{STATUS}}', fg=COLOURS[status])}{first}")
        for line in rest:
            click.echo(" " * (CHECK + STATUS + 2) + line)


def _print_zones(zones: "Iterable[ZoneStatus]") -> None:
    click.secho("metered", bold=True)
    for zone in zones:
        part = zone.rejected or ("part of the node" if zone.in_total else "not added")
        click.echo(printable(f"  {zone.domain:<{DOMAIN}}{zone.role:<{ROLE}}{part:<{PART}}{zone.path}"))
    click.echo()


METER_EXAMPLE = """\b
Examples:
  millrace meter --seconds 10
  millrace meter --seconds 60 --json
"""

METERED, SOURCE = 24, 10
INDENT = 2 + METERED + SOURCE
MAX_WIDTH = 110


@click.command("meter", epilog=METER_EXAMPLE)
@click.option("--seconds", type=Seconds(0, min_open=True), required=True, help="Duration of the measurement.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@sysfs_option
@click.pass_obj
def meter_command(settings: Settings, seconds: float, as_json: bool, root: str) -> None:
    """Measure the energy that this machine uses.

    Joules, watts, error bound and source are printed for every power domain. A domain that cannot be metered is
    printed as missing, with the reason.
    """
    from agents.power.meter import start_metering
    from agents.power.settings import meter_settings

    host = metered_host(root)
    power_settings = meter_settings(host)
    with interrupted_once(), progress_bar("metering", settings.quiet, settings.color) as show_progress:
        metered = start_metering(
            host, power_settings, seconds, lambda left_s: show_progress(max(0.0, 1 - left_s / seconds))
        )
    if as_json:
        click.echo(dump_json(metered), nl=False)
    else:
        _show_metered(metered)


def _show_metered(metered: "Metered") -> None:
    for domain in metered.domains:
        mark = "*" if domain.in_total else " "
        reading = _reading(domain.joules, domain.bound_joules, domain.watts, domain.reason)
        line = f"{mark} {domain.domain:<{METERED}}{domain.source:<{SOURCE}}{reading}{_in_brackets(domain.flags)}"
        click.echo(printable(line))
    total = metered.total
    seconds = (metered.end_ns - metered.start_ns) / NS
    watts = None if total.joules is None or "gap" in total.flags else total.joules / seconds
    reading = _reading(total.joules, total.bound_joules, watts, total.reason)
    source = total.source or "none"
    line = f"  {'node':<{METERED}}{source:<{SOURCE}}{reading}{_in_brackets(total.flags)}"
    click.secho(
        textwrap.fill(printable(line), MAX_WIDTH, subsequent_indent=" " * INDENT, break_on_hyphens=False), bold=True
    )
    if any(domain.in_total for domain in metered.domains):
        click.echo(f"  over {seconds:.3f} s; * is part of the node")


def _reading(joules: float | None, bound: float | None, watts: float | None, reason: str | None) -> str:
    if joules is None or bound is None:
        return f"missing: {reason}"
    shown = f"{joules:.3f} J +- {bound:.3f} J"
    return shown if watts is None else f"{shown}, {watts:.3f} W"


def _in_brackets(flags: tuple[str, ...]) -> str:
    return f" ({', '.join(flags)})" if flags else ""


RECORD_SYSFS_EXAMPLE = """\b
Example:
  millrace record-sysfs my-server
  millrace doctor --sysfs my-server
"""

MOST_NAMED = 10


@click.command("record-sysfs", epilog=RECORD_SYSFS_EXAMPLE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@sysfs_option
def record_sysfs_command(folder: Path, root: str) -> None:
    """Copy the files of this machine's meters and CPUs.

    DIR is a new folder; commands with --sysfs take it for /. Serial numbers are left out. Some files can be read by
    root only.
    """
    from agents.host.probes import record

    recording = record(metered_host(root).root, folder)
    click.echo(printable(f"{folder}: {recording.files} files"))
    for path, reason in list(recording.refused.items())[:MOST_NAMED]:
        click.echo(printable(f"could not be read: /{path}: {reason}"), err=True)
    if len(recording.refused) > MOST_NAMED:
        click.echo(f"could not be read: {len(recording.refused) - MOST_NAMED} more, see recording.json", err=True)


CLEAN_EXAMPLE = """\b
Examples:
  millrace clean --dry-run
  millrace clean
  millrace clean emulated
  millrace clean /run/millrace/emulated
  millrace clean --all
"""


@click.command("clean", epilog=CLEAN_EXAMPLE)
@click.argument("inventory", required=False, shell_complete=inventories)
@click.option("--all", "every", is_flag=True, help="Take down every emulated cluster of yours that nothing uses.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
def clean_command(inventory: str | None, every: bool, dry_run: bool) -> None:
    """Remove what a crashed campaign left on this host.

    That is: processes, incomplete result folders, state files, locks, namespaces and control groups; of emulated
    clusters that are down, the logs. Emulated clusters that are up are listed, with the checkout and the process that
    brought them up. Only the one of INVENTORY, which may also be the cluster's folder, is taken down; with --all,
    those that nothing uses; on a terminal, those that you confirm. A campaign that is still running is not touched,
    and neither is its cluster. A second call changes nothing.
    """
    from campaign.runner.clean import clean_all

    chosen = _clusters_to_take_down(inventory, every, dry_run)
    outcome = clean_all(chosen, dry_run)
    for line in outcome.running:
        click.echo(printable(f"left alone: {line}"), err=True)
    for line in outcome.done:
        click.echo(printable(f"{'would be removed' if dry_run else 'removed'}: {line}"))
    if outcome.failed:
        raise RunError("could not be removed: " + "; ".join(outcome.failed))
    if not outcome.done:
        click.echo("nothing was left behind")


def _clusters_to_take_down(inventory: str | None, every: bool, dry_run: bool) -> "list[UpCluster]":
    """List the emulated clusters that are up, and return those that the operator wants to take down.

    Raises:
        InputError: the inventory is not that of an emulated cluster.
    """
    from campaign.runner.clean import clusters_up
    from controller.emulation.description import cluster_folder

    if inventory is not None and every:
        raise InputError("clean: give an inventory, or --all; not both")
    named = None if inventory is None else cluster_folder(inventory)
    chosen = []
    asks = inventory is None and not every and not dry_run and sys.stdin.isatty() and sys.stderr.isatty()
    for cluster in clusters_up():
        if cluster.user:
            click.echo(printable(f"left alone: {cluster}: in use by {cluster.user}"), err=True)
        elif every or cluster.folder == named:
            click.echo(printable(f"{'would take' if dry_run else 'takes'} down: {cluster}"), err=True)
            chosen.append(cluster)
        elif asks and click.confirm(printable(f"take down {cluster}?"), err=True):
            chosen.append(cluster)
        elif inventory is None and not asks:
            click.echo(
                printable(f"left alone: {cluster}: take it down with: millrace clean {cluster.folder}"), err=True
            )
    if inventory is not None and not chosen:
        click.echo(printable(f"no emulated cluster of {inventory} is up that nothing uses"), err=True)
    return chosen
