"""`millrace meter`: the energy that this machine uses."""

import textwrap

import click

from agents.power.meter import Metered, measure
from agents.power.settings import settings_of
from campaign.commands.options import Seconds, metered_host, sysfs_option
from campaign.display.progress_bar import progress_bar
from campaign.display.settings import Settings
from controller.host.signals import interrupted_once
from inventory.documents import dump_json
from inventory.foreign import printable

EXAMPLE = """\b
Examples:
  millrace meter --seconds 10
  millrace meter --seconds 60 --json
"""

NAME, SOURCE = 24, 10
INDENT, MAX_WIDTH = 2 + NAME + SOURCE, 110


@click.command(epilog=EXAMPLE)
@click.option("--seconds", type=Seconds(0, min_open=True), required=True, help="Duration of the measurement.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@sysfs_option
@click.pass_obj
def command(settings: Settings, seconds: float, as_json: bool, root: str) -> None:
    """Measure the energy that this machine uses.

    Joules, watts, error bound and source are printed for every power domain. A domain that cannot be metered is
    printed as missing, with the reason.
    """
    host = metered_host(root)
    power_settings = settings_of(host)
    with interrupted_once(), progress_bar("metering", settings.quiet, settings.color) as show_progress:
        metered = measure(host, power_settings, seconds, lambda left_s: show_progress(max(0.0, 1 - left_s / seconds)))
    if as_json:
        click.echo(dump_json(metered), nl=False)
    else:
        _show(metered)


def _show(metered: Metered) -> None:
    for domain in metered.domains:
        mark = "*" if domain.in_total else " "
        reading = _reading(domain.joules, domain.bound_joules, domain.watts, domain.reason)
        line = f"{mark} {domain.domain:<{NAME}}{domain.source:<{SOURCE}}{reading}{_in_brackets(domain.flags)}"
        click.echo(printable(line))
    total = metered.total
    seconds = (metered.end_ns - metered.start_ns) / 1e9
    watts = None if total.joules is None or "gap" in total.flags else total.joules / seconds
    reading = _reading(total.joules, total.bound_joules, watts, total.reason)
    source = total.source or "none"
    line = f"  {'node':<{NAME}}{source:<{SOURCE}}{reading}{_in_brackets(total.flags)}"
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
