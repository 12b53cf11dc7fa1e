"""Checks on the plans of a scheduler: a wrapper that rejects an invalid plan with a list of its faults.

Built-in schedulers are wrapped too, in tests and at run time. A plan that passes can be started: every executor appears
at most once, in slots that exist, are available and belong to one topology.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from inventory.documents import Document, Steps
from inventory.errors import InputError, MillraceError, ParameterError, RunError
from inventory.flops import LackingNodeError
from inventory.params import as_plain, where_written
from inventory.plugins import raised_at
from inventory.power_index import power_index
from scheduler.plan_faults import plan_faults
from scheduler.problem import Needs, Plan, Problem, Scheduler
from scheduler.toolkit.loads import Loads
from workloads.traffic import Traffic

MOST_SHOWN = 20


class InvalidPlanError(RunError):
    """A scheduler's plan is invalid.

    Attributes:
        faults: messages of all faults; the error message shows the first ones.
    """

    def __init__(self, scheduler: str, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        shown = "".join(f"\n  - {fault}" for fault in self.faults[:MOST_SHOWN])
        more = f"\n  ... and {len(self.faults) - MOST_SHOWN} more" if len(self.faults) > MOST_SHOWN else ""
        super().__init__(f"the scheduler {scheduler!r} gave a wrong answer:{shown}{more}")


class Checked:
    """A scheduler with its parameters, whose plans are checked.

    Attributes:
        name: its name.
        params: its parameters as plain data, defaults filled in.
        needs: inputs that it uses.
    """

    def __init__(self, kind: type[Scheduler], params: Any, *sources: tuple[Document, Steps]) -> None:
        """Make it.

        Args:
            kind: its class.
            params: an instance of its `Params`.
            sources: documents with the parameters, for messages (`inventory.params.parameters`).
        """
        self._inner = kind(params)
        self._sources = sources
        self.name: str = kind.name
        self.params: Mapping[str, Any] = as_plain(params)
        self.needs: Needs = kind.needs

    def not_given(self, problem: Problem) -> tuple[str, ...]:
        """Return which of `traffic`, `load` and `hardware` the scheduler uses and `problem` lacks."""
        observed = problem.traffic or Traffic()
        lacking = {
            "traffic": self.needs.traffic != "ignored" and not observed.edges,
            "load": self.needs.load and not observed.load and Loads(problem).unit == "points",
            "hardware": self.needs.hardware and not _knows_hardware(problem),
        }
        return tuple(what for what, lacks in lacking.items() if lacks)

    def place(self, problem: Problem) -> Plan:
        """Run the scheduler, and return its plan if it is valid.

        Raises:
            InputError: a topology has a cycle that the scheduler does not accept, required traffic is missing, or the
                scheduler rejects its input.
            InvalidPlanError: the plan is invalid.
            RunError: the scheduler failed.
        """
        if self.needs.traffic == "required" and problem.traffic is None:
            raise InputError(f"the scheduler {self.name!r} needs observed traffic; give a traffic file: --traffic F")
        if not self.needs.cycles:
            for topology in problem.topologies:
                _ = topology.order  # raises InputError for a cycle
        try:
            plan = self._inner.place(problem)
            faults = plan_faults(problem, plan)
        except ParameterError as fault:
            raise where_written(fault, *self._sources) from None
        except MillraceError:
            raise
        except Exception as fault:
            place = raised_at(fault, type(self._inner))
            raise RunError(
                f"the scheduler {self.name!r} broke down: {type(fault).__name__}: {fault} ({place})"
            ) from fault
        if faults:
            raise InvalidPlanError(self.name, faults)
        return plan


def _knows_hardware(problem: Problem) -> bool:
    """Return whether every available node has a clock and FLOPs per cycle."""
    try:
        power_index(problem.cluster.nodes)
    except LackingNodeError:
        return False
    return True
