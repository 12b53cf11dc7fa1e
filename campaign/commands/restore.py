"""`millrace restore`: every host is given back as it was found."""

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
@click.option("--check", is_flag=True, help="Only say what would change.")
@click.pass_obj
def command(settings: Settings, inventory: str, options: tuple[str, ...], check: bool) -> None:
    """Give every host of an INVENTORY back as it was found, as far as provisioning has changed it.

    It may be done at any time, also when provisioning was interrupted or the host was started anew since. Packages stay
    unless the inventory says `millrace_remove_packages: true`. Doing it twice changes nothing.

    The same as: ansible-playbook -i INVENTORY ansible/restore.yml
    """
    hosts = read_hosts(inventory)
    if is_emulated(hosts) and cluster_of(hosts, as_asked=False) is None:
        click.echo(f"no emulated cluster of {printable(hosts.path)} is up: nothing is to be given back", err=True)
        return
    play("restore", hosts, Choice(check, options), settings)
