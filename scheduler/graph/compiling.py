"""Compile the kernels ahead of their first use: `python -m scheduler.graph.compiling`.

Afterwards, and for as long as the checkout or wheel stays as it is, large rounds start within a second.
"""

from scheduler.graph import multilevel
from scheduler.graph.instance import Instance
from scheduler.graph.tabu import Effort


def compile_kernels() -> None:
    """Place a ring that is just too long to be interpreted; every kernel is used on the way."""
    size = multilevel.INTERPRETED + 1
    ring = Instance(
        members=tuple((executor,) for executor in range(size)),
        load=(1,) * size,
        memory=(0,) * size,
        topology=(0,) * size,
        near=tuple(dict.fromkeys(((at - 1) % size, (at + 1) % size), 1) for at in range(size)),
        capacity=(300, 299) * 5,
        room=(0,) * 10,
        slots=(1,) * 10,
        rate_scale=1,
        load_unit=1.0,
        home=(-1,) * size,
    )
    multilevel.search_large(ring, Effort(1, lambda: False))


if __name__ == "__main__":
    compile_kernels()
