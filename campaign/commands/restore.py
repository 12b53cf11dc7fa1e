"""`millrace restore`: undo the changes of `millrace provision`."""

import click

from campaign.admin.playbook import Choice, play
from campaign.display.settings import Settings
from controller.emulation.lifecycle import cluster_of, is_emulated
from inventory.foreign import printable
from inventory.reading import read_hosts

EXAMPLE = """\b
Examples:
  millrace restore inventory/lab.yml
  millrace restore inventory/lab.yml --check
  millrace restore inventory/lab.yml -- --limit n1
"""


@click.command(epilog=EXAMPLE)
@click.argument("inventory")
@click.argument("options", nargs=-1, metavar="[-- ANSIBLE_OPTIONS...]")
@click.option("--check", is_flag=True, help="Print what would change; change nothing.")
@click.pass_obj
def command(settings: Settings, inventory: str, options: tuple[str, ...], check: bool) -> None:
    """Undo provisioning on the hosts of an inventory.

    Everything that provisioning changed on the hosts of INVENTORY is restored. This works at any time, also after an
    interrupted provisioning or a reboot. Packages stay installed unless the inventory sets `millrace_remove_packages:
    true`. A second call changes nothing.

    The same as: ansible-playbook -i INVENTORY ansible/restore.yml
    """
    hosts = read_hosts(inventory)
    if is_emulated(hosts) and cluster_of(hosts, as_asked=False) is None:
        click.echo(f"no emulated cluster of {printable(hosts.path)} is up: nothing to restore", err=True)
        return
    play("restore", hosts, Choice(check, options), settings)
