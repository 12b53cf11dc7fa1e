"""`millrace list`: what is installed."""

import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from campaign.admin.plugins import KINDS, Entry
from inventory.foreign import printable

EXAMPLE = """\b
Example:
  millrace list schedulers
"""

MAX_WIDTH = 110


@click.command("list", epilog=EXAMPLE)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def command(kind: str, as_json: bool) -> None:
    """List schedulers, workloads, agendas or sensors.

    Those of installed plug-ins are included.
    """
    entries = KINDS[kind]()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(entries), indent=2))
        return
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    for entry in entries:
        click.secho(printable(entry["name"]), bold=True)
        for line in _lines(entry):
            click.echo(textwrap.fill(printable(line), width, initial_indent="  ", subsequent_indent="    "))


def _lines(entry: Entry) -> Iterator[str]:
    if entry["error"]:
        yield f"cannot be used: {entry['error']}"
        return
    if entry.get("summary"):
        yield entry["summary"]
    if entry.get("paper"):
        yield f"source: {entry['paper']}"
    if "kind" in entry:
        yield _KINDS[entry["kind"]]
        yield f"input: {_input_of(entry)}"
        if entry["ignores"]:
            yield f"ignores: {entry['ignores']}"
        if entry["cycles"]:
            yield "topologies may have cycles"
    if entry.get("params"):
        yield "parameters: " + ", ".join(f"{p['name']} = {_value(p['default'])}" for p in entry["params"])


_KINDS = {
    "static": "static: places before the start",
    "online": "online: designed to place again while topologies run",
}


def _input_of(entry: Entry) -> str:
    """Return what the scheduler uses beyond executors, slots and the edges of the topology."""
    resources = "resource requests of executors and resources of nodes" if entry["resources"] else None
    hardware = "clock, FLOPs per cycle and RAM of nodes" if entry["hardware"] else None
    traffic = {
        "required": "observed traffic (refuses to place without)",
        "used": "observed traffic, if available",
        "ignored": None,
    }[entry["traffic"]]
    load = "observed loads of executors, if available" if entry["load"] else None
    return "; ".join(filter(None, (resources, hardware, traffic, load))) or "only topologies, nodes and slots"


def _value(default: Any) -> str:
    return "automatic" if default is None else msgspec.json.encode(default).decode()
