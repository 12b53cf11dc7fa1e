"""`resource-aware`: Storm's ResourceAwareScheduler, whole topologies by guarantee and priority, packed by demand.

After Apache Storm 2.3 and later (engine `2.3`) and v1.1.1 (engine `1.1`), `storm-server/.../scheduler/resource/`; the
parts are in `scheduler.ras`. Our decisions: CPU and memory are added as exact decimals; ties go to the smaller id;
topologies with 10,000 executors or more get a larger limit of search states, since Storm rejects them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from inventory.errors import ParameterError, nearest
from scheduler.problem import Needs, Plan, Problem, concluded
from scheduler.ras.ledger import ResourceAmount, ResourceLedger
from scheduler.ras.rounds import RoundOfUsers, schedule_in_order, scheduling_order
from scheduler.ras.strategies import Engine, Recipe, StrategyName
from scheduler.toolkit.slots import assigned
from workloads.topology import Component

NonNegative = Annotated[float, Meta(ge=0)]


class Guarantee(Struct, frozen=True, forbid_unknown_fields=True):
    """Guaranteed resources of a user: CPU points and MB."""

    cpu: NonNegative = 0.0
    memory_mb: NonNegative = 0.0


@dataclass(frozen=True)
class ResourceAwareParams:
    """Parameters of `resource-aware`.

    Attributes:
        strategy: how the executors of one topology are placed.
        engine: rules of Storm 2.3 (and later) or of 1.1.
        worker_min_cpu: minimum CPU points of a worker.
        order_by_proximity: each executor is followed by its receivers, instead of sorting by connections.
        one_executor_per_worker: a worker holds one executor.
        one_component_per_worker: a worker holds executors of one component.
        intended_sorting: sort nodes again when the component changes, as Storm intends, not when it stays the same, as
            Storm does.
        search_states: maximum number of places tried per topology; None = Storm's 10,000, more for larger topologies.
        time_limit_s: seconds per topology, as a safeguard.
        priority: order of topologies, by score (`default`) or, beyond the guarantees, by age (`fifo`).
        user_pools: user -> guaranteed amount.
        favored_nodes: nodes tried before all others.
        unfavored_nodes: nodes tried after all others.
    """

    strategy: StrategyName = "default"
    engine: Engine = "2.3"
    worker_min_cpu: NonNegative = 0.0
    order_by_proximity: bool = False
    one_executor_per_worker: bool = False
    one_component_per_worker: bool = False
    intended_sorting: bool = False
    search_states: Annotated[int, Meta(ge=1)] | None = None
    time_limit_s: Annotated[float, Meta(gt=0)] = 60.0
    priority: Literal["default", "fifo"] = "default"
    user_pools: Mapping[str, Guarantee] = field(default_factory=dict)
    favored_nodes: tuple[str, ...] = ()
    unfavored_nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject options that engine 1.1 does not have.

        Raises:
            ValueError: an option is not available in engine 1.1.
        """
        if self.engine != "1.1":
            return
        if self.strategy not in ("default", "default-old"):
            raise ValueError(f"engine 1.1 has no strategy {self.strategy!r}, only 'default'")
        later = (
            "worker_min_cpu",
            "order_by_proximity",
            "one_executor_per_worker",
            "one_component_per_worker",
            "intended_sorting",
            "favored_nodes",
            "unfavored_nodes",
        )
        for name in later:
            if getattr(self, name):
                raise ValueError(f"engine 1.1 has no {name}")
        if self.priority != "default":
            raise ValueError(f"engine 1.1 has no priority {self.priority!r}")


class ResourceAware:
    """Whole topologies, highest priority first, packed by CPU, memory and heap."""

    name: ClassVar[str] = "resource-aware"
    paper: ClassVar[str] = "Apache Storm 2.3 and 1.1, ResourceAwareScheduler"
    needs: ClassVar[Needs] = Needs(
        resources=True, memory=True, cycles=True, ignores="workers asked for, load, traffic, clock, FLOPs per cycle"
    )
    Params: ClassVar[type] = ResourceAwareParams

    def __init__(self, params: ResourceAwareParams) -> None:
        self._params = params
        self._recipe = Recipe(
            strategy=params.strategy,
            engine=params.engine,
            order_by_proximity=params.order_by_proximity,
            one_executor_per_worker=params.one_executor_per_worker,
            one_component_per_worker=params.one_component_per_worker,
            intended_sorting=params.intended_sorting,
            search_states=params.search_states,
            time_limit_s=params.time_limit_s,
            favored=params.favored_nodes,
            unfavored=params.unfavored_nodes,
        )

    def heap(self, component: Component) -> float:
        """Return the MB that an executor uses of the heap of its worker; Storm 1.1 counts off-heap memory, too."""
        return component.memory if self._params.engine == "1.1" else component.onheap

    def place(self, problem: Problem) -> Plan:
        """Run one round.

        Raises:
            InputError: a favoured or unfavoured node is unknown.
        """
        params = self._params
        known = problem.cluster.by_id
        for param in ("favored_nodes", "unfavored_nodes"):
            for at, name in enumerate(getattr(params, param)):
                if name not in known:
                    raise ParameterError((param, at), f"unknown node {name!r}{nearest(name, known)}")
        pools = params.user_pools
        ledger = ResourceLedger(
            problem, params.worker_min_cpu, [p.cpu for p in pools.values()], [p.memory_mb for p in pools.values()]
        )
        guarantees = {
            user: ResourceAmount(ledger.cpu_unit.count(pool.cpu), ledger.mb_unit.count(pool.memory_mb))
            for user, pool in pools.items()
        }
        if params.engine == "1.1":
            users = RoundOfUsers(ledger, self._recipe, problem.topologies, guarantees)
            first, run = users.first, users.run
        else:
            order = scheduling_order(ledger, problem.topologies, guarantees, params.priority == "fifo")
            first, run = next(iter(order), None), partial(schedule_in_order, ledger, self._recipe, order)
        racks = self._recipe.first_racks(ledger, first) if first else []
        account = run()
        workers = ledger.state.workers
        placements = {t.id: concluded(t, assigned(workers[t.id]), account.messages[t.id]) for t in problem.topologies}
        details = {"scheduling_order": account.order, "rack_order": racks, "limit_hit": account.limit_hit}
        return ledger.state.plan(placements, details)
