"""`millrace check`: whether a plug-in fulfils the contract of its kind."""

from collections.abc import Iterator

import click

from campaign.admin.checks.report import Check, report_of
from campaign.display.settings import Settings
from inventory.documents import dump_json

EXAMPLE = """\b
Examples:
  millrace check scheduler even
  millrace check workload wordcount --json
"""

MAX_WIDTH = 110


@click.command("check", epilog=EXAMPLE)
@click.argument("kind", metavar="scheduler|workload", type=click.Choice(("scheduler", "workload")))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(settings: Settings, kind: str, name: str, as_json: bool) -> int:
    """Test a scheduler or workload before a campaign uses it.

    A scheduler, built in or from a plug-in, places about a dozen problems several times and in two processes: plans
    must be valid, repeatable and on time. A workload's operators are snapshotted and restored at random moments and
    then run on this host for some seconds while executors move. Default parameters are used. The exit status is 1 if
    a check fails.
    """
    found: list[Check] = []
    for check in _checks(settings, kind, name):
        found.append(check)
        if not as_json:
            mark = click.style("ok", fg="green") if check.ok else click.style("NOT OK", fg="red")
            click.echo(f"{check.name:<{10}}{mark}  {check.message}")
    outcome = report_of(found)
    if as_json:
        click.echo(dump_json(outcome), nl=False)
    return 0 if outcome.ok else 1


def _checks(settings: Settings, kind: str, name: str) -> Iterator[Check]:
    if kind == "scheduler":
        from campaign.admin.checks.scheduler import check_scheduler

        return check_scheduler(name)
    from campaign.admin.checks.workload import check_workload

    return check_workload(name, settings)
