"""What commands of several modules share: options, and callbacks for backends."""

import math
from typing import TYPE_CHECKING, Any

import click

from campaign.display.terminal import Settings, notice

if TYPE_CHECKING:
    from controller.nodes.backend import Operator
    from inventory.ansible_hosts import Hosts


class Seconds(click.FloatRange):
    """Finite number of seconds within a range; click's own range accepts `nan`, and `inf` if it has no maximum."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail with a usage error if it is not finite."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return seconds


master_option = click.option("--master", metavar="URL", help="Spark master; default local[*], this host's cores.")


def operator_callbacks(settings: Settings) -> "Operator":
    """Return the callbacks for these global options of the command line."""
    from controller.nodes.backend import Operator

    def provision(hosts: "Hosts") -> None:
        # Importing it takes as long as a run on processes needs to start.
        from campaign.admin.playbook import Choice, play

        play("provision", hosts, Choice(only_errors=True), settings)

    return Operator(provision, settings.progress, notice)
