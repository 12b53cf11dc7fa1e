"""`millrace verify`: measure whether hosts match their inventory."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from campaign.admin.playbook import Choice, play
from campaign.display.settings import Settings
from inventory.documents import dump_json, read
from inventory.errors import RunError
from inventory.foreign import printable
from inventory.reading import read_hosts

EXAMPLE = """\b
Examples:
  millrace verify inventory/lab.yml
  millrace verify inventory/lab.yml --json -- --limit n1
"""

Value = float | str | bool | None


class Check(Struct, frozen=True):
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
    checks: tuple[Check, ...]


@click.command(epilog=EXAMPLE)
@click.argument("inventory")
@click.argument("options", nargs=-1, metavar="[-- ANSIBLE_OPTIONS...]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_obj
def command(settings: Settings, inventory: str, options: tuple[str, ...], as_json: bool) -> int:
    """Measure whether hosts match their inventory.

    Cores, CPU clocks, links, limits and the offset of the system clock are measured on the hosts of INVENTORY. The
    exit status is 1 if a value differs by more than its tolerance.

    The same as: ansible-playbook -i INVENTORY ansible/verify.yml
    """
    hosts = read_hosts(inventory)
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
        _table(verified)
    if fault is not None and verified.ok:
        raise fault
    return 0 if verified.ok else 1


def _table(verified: Verified) -> None:
    rows: list[Sequence[str]] = [("node", "to", "what", "asked", "got", "unit", "")]
    for check in verified.checks:
        plain = (check.node, check.to, check.what, check.asked, check.got, check.unit, "ok" if check.ok else "NOT OK")
        rows.append([_cell(value) for value in plain])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Value) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else printable(value)
