"""Trust no answer: a wrapper around any scheduler that refuses a wrong plan and names all its faults.

It stands around the built-in schedulers too, in tests and at run time. A plan that passes can be started as it
is: every executor at most once, in slots that exist, are offered and belong to one topology.
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
    """A scheduler's plan cannot be used.

    Attributes:
        faults: all of them, in words; the message shows the first ones.
    """

    def __init__(self, scheduler: str, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        shown = "".join(f"\n  - {fault}" for fault in self.faults[:MOST_SHOWN])
        more = f"\n  ... and {len(self.faults) - MOST_SHOWN} more" if len(self.faults) > MOST_SHOWN else ""
        super().__init__(f"the scheduler {scheduler!r} gave a wrong answer:{shown}{more}")


class Checked:
    """A scheduler with its parameters, ready to be asked, whose answers are checked.

    Attributes:
        name: its name.
        params: its parameters as plain data, defaults filled in.
        needs: what it must be told.
    """

    def __init__(self, kind: type[Scheduler], params: Any, *sources: tuple[Document, Steps]) -> None:
        """Make it.

        Args:
            kind: its class.
            params: an instance of its `Params`.
            sources: where these were written, for messages (`inventory.params.parameters`).
        """
        self._inner = kind(params)
        self._sources = sources
        self.name: str = kind.name
        self.params: Mapping[str, Any] = as_plain(params)
        self.needs: Needs = kind.needs

    def not_given(self, problem: Problem) -> tuple[str, ...]:
        """What the scheduler would use of `traffic`, `load` and `hardware`, and `problem` does not say."""
        observed = problem.traffic or Traffic()
        lacking = {
            "traffic": self.needs.traffic != "ignored" and not observed.edges,
            "load": self.needs.load and not observed.load and Loads(problem).unit == "points",
            "hardware": self.needs.hardware and not _knows_hardware(problem),
        }
        return tuple(what for what, lacks in lacking.items() if lacks)

    def place(self, problem: Problem) -> Plan:
        """Ask the scheduler, and pass its plan on if nothing is wrong with it.

        Raises:
            InputError: a topology has a cycle and the scheduler's definition allows none, nothing was observed and
                it cannot work without, or what the scheduler itself says of its input.
            WrongAnswerError: the plan is wrong.
            RunError: the scheduler broke down.
        """
        if self.needs.traffic == "required" and problem.traffic is None:
            raise InputError(f"the scheduler {self.name!r} needs observed traffic; give a traffic file: --traffic F")
        if not self.needs.cycles:
            for topology in problem.topologies:
                _ = topology.order  # complains of a cycle
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
    """Whether every available node says its clock and FLOPs per cycle."""
    try:
        power_index(problem.cluster.nodes)
    except LackingNodeError:
        return False
    return True
