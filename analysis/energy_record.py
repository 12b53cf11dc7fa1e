"""`measured.energy` of `run.json`, as far as the report uses it; energies are in joules, None when unknown."""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Domain(Struct, frozen=True):
    """Energy of one domain of a machine in the measured interval."""

    domain: str
    role: str
    source: str
    in_total: bool
    joules: float | None = None
    bound_joules: float | None = None
    idle_watts: float | None = None
    flags: Sequence[str] = ()
    reason: str | None = None


class Packages(Struct, frozen=True):
    """How workers were assigned to packages: `affinity`, `last_cpu` or `together` -> share of their CPU time."""

    known_by: Mapping[str, float]
    reason: str | None = None


class Machine(Struct, frozen=True):
    """One machine; the meters of the first of its nodes count."""

    nodes: Sequence[str]
    source: str | None = None
    modelled: bool = False
    domains: Sequence[Domain] = ()
    packages: Packages | None = None


class Hop(Struct, frozen=True):
    """Tuples delivered by one kind of hop, and their energy by the convention of docs/reference/results.md."""

    tuples: int
    joules: float | None = None
    joules_per_tuple: float | None = None


class Energy(Struct, frozen=True):
    """All machines together."""

    joules: float | None = None
    bound_joules: float | None = None
    idle_joules: float | None = None
    net_joules: float | None = None
    sources: Sequence[str] = ()
    modelled: bool = False
    flags: Sequence[str] = ()
    reason: str | None = None
    tuples: int | None = None
    joules_per_tuple: float | None = None
    net_joules_per_tuple: float | None = None
    hops: Mapping[str, Hop] | None = None
    why_not_attributed: str | None = None
    machines: Sequence[Machine] = ()

    @property
    def source(self) -> str:
        """Names of the readers; empty when there is none."""
        return ", ".join(self.sources)

    @property
    def together(self) -> float | None:
        """Largest share of workers' CPU time with unknown package; None without several packages."""
        known = [machine.packages.known_by.get("together", 0.0) for machine in self.machines if machine.packages]
        return max(known, default=None)

    @property
    def domains(self) -> str:
        """Names of the domains in the total."""
        found = {each.domain for machine in self.machines for each in machine.domains if each.in_total}
        return ", ".join(sorted(found))
