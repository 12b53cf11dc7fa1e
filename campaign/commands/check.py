"""`millrace check`: whether a plug-in keeps what it owes."""

from collections.abc import Iterator

import click

from campaign.admin.checks.outcome import Check, checked
from campaign.display.settings import Settings
from inventory.documents import dump_json

EXAMPLE = """\b
Examples:
  millrace check scheduler even
  millrace check workload wordcount --json
"""

WIDEST = 110


@click.command("check", epilog=EXAMPLE)
@click.argument("kind", metavar="scheduler|workload", type=click.Choice(("scheduler", "workload")))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(settings: Settings, kind: str, name: str, as_json: bool) -> int:
    """Try a scheduler or a workload, built in or of a plug-in, before a campaign relies on it.

    A scheduler is asked about a dozen rounds, more than once and in two processes: right plans, the same for the same
    problem, in time. A workload's operators are taken through snapshot and restore at random moments, and then run on
    this host for some seconds while executors move. Default parameters are used; the exit status is 1 when something
    does not hold.
    """
    found: list[Check] = []
    for check in _checks(settings, kind, name):
        found.append(check)
        if not as_json:
            mark = click.style("ok", fg="green") if check.ok else click.style("NOT OK", fg="red")
            click.echo(f"{check.name:<{10}}{mark}  {check.message}")
    outcome = checked(found)
    if as_json:
        click.echo(dump_json(outcome), nl=False)
    return 0 if outcome.ok else 1


def _checks(settings: Settings, kind: str, name: str) -> Iterator[Check]:
    if kind == "scheduler":
        from campaign.admin.checks.scheduler import check_scheduler

        return check_scheduler(name)
    from campaign.admin.checks.workload import check_workload

    return check_workload(name, settings)
