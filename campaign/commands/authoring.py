"""Commands for authors of plug-ins, agendas and other files: `list`, `check` and `schema`."""

import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from campaign.commands.completion import checked_plugins
from campaign.display.terminal import Settings
from inventory.errors import nearest
from inventory.foreign import printable

if TYPE_CHECKING:
    from campaign.admin.checks.trial import Check
    from campaign.admin.plugins import Entry

LIST_EXAMPLE = """\b
Example:
  millrace list schedulers
"""

MAX_WIDTH = 110

KINDS = ("schedulers", "workloads", "agendas", "sensors")


@click.command("list", epilog=LIST_EXAMPLE)
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def list_command(kind: str, as_json: bool) -> None:
    """List schedulers, workloads, agendas or sensors.

    Those of installed plug-ins are included.
    """
    from campaign.admin.plugins import LISTINGS

    entries = LISTINGS[kind]()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(entries), indent=2))
        return
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    for entry in entries:
        click.secho(printable(entry["name"]), bold=True)
        for line in _lines_of(entry):
            click.echo(textwrap.fill(printable(line), width, initial_indent="  ", subsequent_indent="    "))


def _lines_of(entry: "Entry") -> Iterator[str]:
    if entry["error"]:
        yield f"cannot be used: {entry['error']}"
        return
    if entry.get("summary"):
        yield entry["summary"]
    if entry.get("paper"):
        yield f"source: {entry['paper']}"
    if "kind" in entry:
        yield _SCHEDULER_KINDS[entry["kind"]]
        yield f"input: {_input_of(entry)}"
        if entry["ignores"]:
            yield f"ignores: {entry['ignores']}"
        if entry["cycles"]:
            yield "topologies may have cycles"
    if entry.get("params"):
        yield "parameters: " + ", ".join(f"{p['name']} = {_value(p['default'])}" for p in entry["params"])


_SCHEDULER_KINDS = {
    "static": "static: places before the start",
    "online": "online: designed to place again while topologies run",
}


def _input_of(entry: "Entry") -> str:
    """Return what the scheduler uses beyond executors, slots and the edges of the topology."""
    resources = "resource requests of executors and resources of nodes" if entry["resources"] else None
    hardware = "clock, FLOPs per cycle and RAM of nodes" if entry["hardware"] else None
    traffic = {
        "required": "observed traffic (refuses to place without)",
        "used": "observed traffic, if available",
        "ignored": None,
    }.get(entry["traffic"], f"an invalid value for traffic, {entry['traffic']!r}: see `millrace check scheduler`")
    load = "observed loads of executors, if available" if entry["load"] else None
    return "; ".join(filter(None, (resources, hardware, traffic, load))) or "only topologies, nodes and slots"


def _value(default: Any) -> str:
    return "automatic" if default is None else msgspec.json.encode(default).decode()


CHECK_EXAMPLE = """\b
Examples:
  millrace check scheduler even
  millrace check workload wordcount --json
"""


@click.command("check", epilog=CHECK_EXAMPLE)
@click.argument("kind", metavar="scheduler|workload", type=click.Choice(("scheduler", "workload")))
@click.argument("name", shell_complete=checked_plugins)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def check_command(settings: Settings, kind: str, name: str, as_json: bool) -> int:
    """Test a scheduler or workload before a campaign uses it.

    A scheduler, built in or from a plug-in, places about a dozen problems several times and in two processes: plans
    must be valid, repeatable and on time. An online one then revises a topology whose loads, nodes and numbers of
    executors change: revisions must be valid, and the same with JSON in between and when replayed. A workload's
    operators are snapshotted and restored at random moments and then run on this host for some seconds while executors
    move. Default parameters are used. The exit status is 1 if a check fails.
    """
    from campaign.admin.checks.trial import report_of

    checks: list[Check] = []
    for check in _checks(settings, kind, name):
        checks.append(check)
        if not as_json:
            mark = click.style("ok", fg="green") if check.ok else click.style("NOT OK", fg="red")
            click.echo(f"{check.name:<10}{mark}  {check.message}")
    outcome = report_of(checks)
    if as_json:
        from inventory.documents import dump_json

        click.echo(dump_json(outcome), nl=False)
    return 0 if outcome.ok else 1


def _checks(settings: Settings, kind: str, name: str) -> "Iterator[Check]":
    if kind == "scheduler":
        from campaign.admin.checks.scheduler import check_scheduler

        return check_scheduler(name)
    from campaign.admin.checks.workload import check_workload
    from campaign.commands.options import operator_callbacks

    quiet = Settings(settings.debug, quiet=True, color=settings.color)
    return check_workload(name, quiet, operator_callbacks(quiet))


SCHEMAS = (
    *("agenda", "campaign", "cluster", "live", "observation", "placement", "revision", "run", "topology", "traffic"),
)

SCHEMA_EXAMPLE = """\b
Example:
  millrace schema agenda > agenda.schema.json
"""


class _SchemaName(click.Choice[str]):
    """Name of a schema; an error names the nearest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in SCHEMAS:
            self.fail(f"unknown schema {value!r}{nearest(value, SCHEMAS)}", param, ctx)
        return str(value)


@click.command("schema", epilog=SCHEMA_EXAMPLE)
@click.argument("name", type=_SchemaName(SCHEMAS))
def schema_command(name: str) -> None:
    """Print the JSON Schema of a kind of file.

    Editors check and complete agendas, clusters, topologies and traffic files with it; scripts validate placements,
    observations and revisions, and the run.json, campaign.json and live.json of results. docs/schemas contains the
    same files.
    """
    from campaign.commands.schemas import schema_text

    click.echo(schema_text(name), nl=False)
