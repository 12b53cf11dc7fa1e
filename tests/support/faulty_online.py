"""Online schedulers with one fault each, for `millrace check`; they are installed beside `bad_schedulers`."""

# mypy: ignore-errors
import os
import subprocess
from typing import ClassVar

from bad_schedulers import Named

from millrace import Move, Needs, Revision, Rhythm, Slot


class Online(Named):
    needs = Needs(online=True)
    rhythm = Rhythm(10, 1, first_s=10, ask_s=10)

    def revise(self, problem, observation):
        return None

    def move(self, problem, observation, index=1):
        (topology,) = problem.topologies
        executor = topology.executors[0]
        here = observation.places[executor.name]
        return Revision("cut", moves=[Move(topology.id, executor, here, Slot(here.node, index))])


class Wrong(Online):
    name = "bad-revision"

    def revise(self, problem, observation):
        return self.move(problem, observation, 99) if observation.nodes["n1"].load > 0.9 else None


class Broken(Online):
    name = "bad-revising"

    def revise(self, problem, observation):
        return {}[observation.changes[0].node] if observation.changes else None


class Dying(Online):
    name = "bad-leaving"

    def revise(self, problem, observation):
        os._exit(7)


class Identity(Online):
    name = "bad-identity"
    known = None

    def revise(self, problem, observation):
        before, self.known = self.known, problem.topologies[0]
        if before is not None and before is not self.known:
            return Revision(text="another cluster")
        return None


class Shared(Online):
    name = "bad-shared"
    asked: ClassVar[list] = []

    def revise(self, problem, observation):
        self.asked.append(observation.at_s)
        return Revision(text=f"asked {self.asked.count(observation.at_s)} times")


class Clearing(Online):
    name = "bad-observing"

    def revise(self, problem, observation):
        observation.executors.pop("read[0]", None)


class Parent(Online):
    name = "leaving-a-child"

    def __init__(self, params):
        super().__init__(params)
        subprocess.Popen(["sleep", "30"], start_new_session=True)


class Misspelt(Online):
    name = "bad-values"
    needs = Needs(online=1, traffic="requird")


class Timeless(Online):
    name = "bad-rhythm"
    rhythm: ClassVar[dict] = {"ask_s": 5}
