"""Schedulers by name: found by entry point, created from checked parameters, wrapped to reject invalid plans.

Built-in schedulers are wrapped too, in tests and at run time. A plan that passes can be started: every executor appears
at most once, in slots that exist, are available and belong to one topology.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from inventory.documents import Origin
from inventory.errors import InputError, MillraceError, ParameterError, RunError, UnfitError
from inventory.plugins import as_plain, load_plugin, parameters, plugins, raised_at, where_written
from inventory.power_index import LackingNodeError, power_index
from scheduler.problem import Needs, Overlap, Plan, Problem, Scheduler
from scheduler.toolkit.cost import Loads
from scheduler.toolkit.plan_faults import plan_faults
from scheduler.toolkit.slow_notice import slow_notice
from workloads.traffic import Traffic

GROUP = "millrace.schedulers"

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
        inner: the scheduler itself.
        params: its parameters as plain data, defaults filled in.
        needs: inputs that it uses.
    """

    def __init__(self, kind: type[Scheduler], params: Any, *sources: Origin) -> None:
        """Make it.

        Args:
            kind: its class.
            params: an instance of its `Params`.
            sources: origins of the parameters, for messages (`inventory.plugins.parameters`).
        """
        self.inner = kind(params)
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

    @property
    def overlap(self) -> Overlap:
        """Overlap of time slots in its runs with gates, unless the agenda sets one: its optional attribute `overlap`.

        Raises:
            RunError: it is neither.
        """
        overlap: Overlap = getattr(self.inner, "overlap", "none")
        if overlap not in get_args(Overlap):
            raise RunError(f"the scheduler {self.name!r}: overlap is {overlap!r}, 'none' or 'transfer' was expected")
        return overlap

    def place(self, problem: Problem) -> Plan:
        """Run the scheduler, and return its plan if it is valid.

        Raises:
            InputError: a topology has a cycle that the scheduler does not accept, required traffic is missing, or the
                scheduler rejects its input.
            InvalidPlanError: the plan is invalid.
            RunError: the scheduler failed.
        """
        if self.needs.traffic == "required" and problem.traffic is None:
            raise InputError(
                f"the scheduler {self.name!r} needs observed traffic; give a traffic file: --traffic F, or a load "
                "document: --load F"
            )
        if not self.needs.cycles:
            for topology in problem.topologies:
                _ = topology.order  # raises InputError for a cycle
        with slow_notice(self.name), self._faults_named():
            plan = self.inner.place(problem)
            faults = plan_faults(problem, plan)
        if faults:
            raise InvalidPlanError(self.name, faults)
        return plan

    @contextmanager
    def _faults_named(self) -> Iterator[None]:
        """Add to an error of the scheduler where its parameter is written, or where its code is."""
        try:
            yield
        except ParameterError as fault:
            raise where_written(fault, *self._sources) from None
        except MillraceError:
            raise
        except Exception as fault:
            place = raised_at(fault, type(self.inner))
            raise RunError(f"the scheduler {self.name!r} raised {type(fault).__name__}: {fault} ({place})") from fault


def _knows_hardware(problem: Problem) -> bool:
    """Return whether every available node has a clock and FLOPs per cycle."""
    try:
        power_index(problem.cluster.nodes)
    except LackingNodeError:
        return False
    return True


def scheduler_names() -> Sequence[str]:
    """Return the names of all installed schedulers, ascending."""
    return list(plugins(GROUP))


def computing_schedulers() -> Sequence[str]:
    """Return the names of those that compute placements from any problem: all but `given`."""
    return [name for name in scheduler_names() if name != "given"]


def scheduler_class(name: str) -> type[Scheduler]:
    """Return the class registered as `name`.

    Raises:
        InputError: no such scheduler; the message names the nearest one.
        UnfitError: it cannot be loaded, or is not a scheduler.
    """
    plugin = load_plugin(GROUP, name)
    missing = [part for part in ("name", "paper", "needs", "Params", "place") if not hasattr(plugin, part)]
    if missing:
        raise UnfitError(f"the scheduler {name!r} ({plugin!r}) has no {', '.join(missing)}")
    if plugin.name != name:
        raise UnfitError(f"the scheduler {name!r} ({plugin!r}) calls itself {plugin.name!r}")
    kind: type[Scheduler] = plugin
    return kind


def make_scheduler(name: str, *sources: Origin, ignore_unknown: bool = False) -> Checked:
    """Return the scheduler `name` with its parameters (`inventory.plugins.parameters`).

    Raises:
        InputError: no such scheduler, an unknown parameter or a value that is not allowed.
        UnfitError: the scheduler cannot be loaded.
    """
    kind = scheduler_class(name)
    return Checked(kind, parameters(kind.Params, *sources, ignore_unknown=ignore_unknown), *sources)
