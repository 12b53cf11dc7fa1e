"""Callbacks for backends that bring clusters up: provisioning, progress and notices."""

from campaign.display.settings import Settings, notice
from controller.nodes.backend import Operator
from inventory.ansible_hosts import Hosts


def operator_callbacks(settings: Settings) -> Operator:
    """Return the callbacks for these global options of the command line."""

    def provision(hosts: Hosts) -> None:
        # Importing it takes as long as a run on processes needs to start.
        from campaign.admin.playbook import Choice, play

        play("provision", hosts, Choice(only_errors=True), settings)

    return Operator(provision, settings.progress, notice)
