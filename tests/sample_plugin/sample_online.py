"""Third-party online schedulers: one moves by turns, one is silent, one is faulty, and one scales a component."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from sample_plugin import FirstFit, FirstFitParams

from millrace import Meta, Move, Needs, Observation, Problem, Revision, Rhythm, Slot


@dataclass(frozen=True)
class CarouselParams(FirstFitParams):
    """Parameters of `sample-carousel`.

    Attributes:
        think_s: seconds that a decision takes.
        initial: scheduler of the placement at the start.
    """

    think_s: Annotated[float, Meta(ge=0)] = 0.0
    initial: str = "sample-first-fit"


class Carousel(FirstFit):
    """Moves one executor per question to the next node: all in turn, whatever was observed."""

    name: ClassVar[str] = "sample-carousel"
    needs: ClassVar[Needs] = Needs(online=True, cycles=True, ignores="everything but nodes that come and go")
    rhythm: ClassVar[Rhythm] = Rhythm(window_s=2, sample_s=1, average="mean", first_s=3, ask_s=2)
    Params: ClassVar[type] = CarouselParams

    def __init__(self, params: CarouselParams) -> None:
        super().__init__(params)
        self.think_s, self.turn = params.think_s, 0

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        print(f"asked at {observation.at_s} s", file=sys.stderr)  # into the log of its process
        time.sleep(self.think_s)
        (topology,) = problem.topologies
        nodes = [node.id for node in problem.cluster.available]
        executor = topology.executors[self.turn % len(topology.executors)]
        here = observation.places[executor.name]
        target = nodes[(nodes.index(here.node) + 1) % len(nodes)] if here.node in nodes else nodes[0]
        details = {"turn": self.turn, "nodes": nodes}
        self.turn += 1
        if target == here.node:
            return Revision(text="there is one node", details=details)
        move = Move(topology.id, executor, here, Slot(target, 0))
        return Revision("cut", f"it is the turn of {executor.name}", [move], details=details)


@dataclass(frozen=True)
class FaultyParams(CarouselParams):
    """Parameters of `sample-faulty`.

    Attributes:
        fault: what it does after its first revision.
        times: how often it is late before it is right again.
    """

    fault: Literal["hang", "die", "rubbish", "text", "nowhere", "bug"] = "hang"
    times: int = 99


class Faulty(Carousel):
    """Gives one right answer, and then none, or wrong ones."""

    name: ClassVar[str] = "sample-faulty"
    Params: ClassVar[type] = FaultyParams

    def __init__(self, params: FaultyParams) -> None:
        super().__init__(params)
        self.fault, self.times = params.fault, params.times

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        late = sum(past.outcome == "late" for past in observation.history)
        if not observation.history or late >= self.times:
            return super().revise(problem, observation)
        match self.fault:
            case "hang":
                print("hangs", file=sys.stderr)  # into the log of its process
                time.sleep(1e6)
            case "die":
                os._exit(7)
            case "rubbish":
                for fd in Path("/proc/self/fd").iterdir():
                    if int(fd.name) > 2 and fd.exists() and not str(fd.readlink()).startswith("/"):
                        os.write(int(fd.name), b"rubbish\n")
            case "text":
                return "even"  # type: ignore[return-value]
            case "nowhere":
                (topology,) = problem.topologies
                executor = topology.executors[0]
                move = Move(topology.id, executor, observation.places[executor.name], Slot("n1", 99))
                return Revision("cut", moves=[move])
        raise ValueError(f"nothing works after {self.turn} turns")


class Silent(FirstFit):
    """Never has anything to say."""

    name: ClassVar[str] = "sample-silent"
    needs: ClassVar[Needs] = Needs(online=True, cycles=True, ignores="everything but free slots")
    rhythm: ClassVar[Rhythm] = Rhythm(window_s=2, first_s=3, ask_s=2)

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        return None


@dataclass(frozen=True)
class BreathingParams(CarouselParams):
    """Parameters of `sample-breathing`.

    Attributes:
        component: the component that it scales.
    """

    component: str = "count"


class Breathing(Carousel):
    """Gives a component an executor more, and takes it away again, while another executor moves."""

    name: ClassVar[str] = "sample-breathing"
    Params: ClassVar[type] = BreathingParams

    def __init__(self, params: BreathingParams) -> None:
        super().__init__(params)
        self.component = params.component

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        moved = super().revise(problem, observation)
        (topology,) = problem.topologies
        present = topology.executors_of(self.component)
        if len(present) % 2:
            size, added = len(present) - 1, {}
        else:
            size, added = len(present) + 1, {present[0]._replace(index=len(present)): Slot("n1", 1)}
        moves = [] if moved is None else [move for move in moved.moves if move.executor != present[-1]]
        return Revision("scale", "in and out", moves, {self.component: size}, added)
