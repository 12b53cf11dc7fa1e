"""The operator's desk, for backends that bring clusters up."""

from campaign.display.settings import Settings, notice
from controller.nodes.backend import Operator
from inventory.ansible_hosts import Hosts


def operator_at(settings: Settings) -> Operator:
    """Return what backends may ask of the operator who gave these global options."""

    def provision(hosts: Hosts) -> None:
        # Importing it takes as long as a run on processes needs to start.
        from campaign.admin.playbook import Choice, play

        play("provision", hosts, Choice(only_errors=True), settings)

    return Operator(provision, settings.progress, notice)
