"""`python -P -m scheduler.deciding`: an online scheduler in a process of its own, and its documents.

Standard input has the scheduler (`SchedulerInFile`), then questions; standard output has a `Reply` to each; one JSON
document per line. The process ends with its standard input, also while the scheduler decides.

The file `decisions.jsonl` has one JSON document per line: the scheduler, then its decisions in order; a reset begins
anew with an empty memory. So it suffices to make every decision again.
"""

import dataclasses
import io
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from inventory.documents import Document, Located, Origin
from inventory.errors import InputError, MillraceError
from inventory.foreign import printable
from inventory.plugins import plain_parameters
from scheduler.online.observation import Observation, check_observed
from scheduler.online.replanner import Replan
from scheduler.online.revision import AnswerInFile, in_file
from scheduler.online.validation import CheckedOnline, make_online_scheduler
from scheduler.problem import Problem

S = TypeVar("S", bound=Struct)

DECISIONS_FILE = "decisions.jsonl"
"""Name of the file in the folder of a run."""

_Large = tuple[Any, ...] | dict[str, Any]


class SchedulerInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The first line: a scheduler, its parameters, and, if its `place` is used for revisions, when."""

    scheduler: str
    params: dict[str, Any] = {}
    replan: Replan | None = None

    def make(self, params: Origin | None = None) -> CheckedOnline:
        """Return the scheduler; `params` is the origin of the parameters, for messages.

        Raises:
            InputError: no such scheduler, a parameter is wrong, or it does not revise.
            UnfitError: it cannot be loaded.
        """
        origin = plain_parameters(self.params, "params") if params is None else params
        return make_online_scheduler(self.scheduler, self.replan, origin)


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """A question to the scheduler."""

    number: int
    problem: Problem
    observation: Observation


class Reply(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Its reply; `answer` is JSON, `error` says why there is none, and `cpu_s` is the CPU time that it took.

    The reply to the first line has the number 0.
    """

    number: int
    cpu_s: float
    answer: msgspec.Raw | UnsetType = UNSET
    error: str = ""


class DecisionInFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A line of a decision; without `answer`, there was none.

    Attributes:
        elapsed_s: seconds from the question to its answer.
        cpu_s: CPU seconds of the scheduler.
        error: why the answer was wrong.
    """

    number: int
    problem: Problem
    observation: Observation
    answer: AnswerInFile | UnsetType = UNSET
    elapsed_s: float | None = None
    cpu_s: float | None = None
    error: str | UnsetType = UNSET


class ResetInFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The line of a reset, with its reason: the scheduler was ended and made anew."""

    reset: str


class KeptDecision(Located[DecisionInFile]):
    """A decision of a file, with its line."""

    @property
    def answer(self) -> bytes | None:
        """The bytes of its answer; None if there was none."""
        found = self.value.answer
        return None if found is UNSET else encode_answer(found)


GAP = msgspec.Raw(b"\0")
"""Place of a large collection in a document; a byte that JSON text never has."""

MOST_ENTRIES = 1_000
"""Entries that are encoded at once: less than a millisecond, in which no other thread runs."""


def question_in_pieces(number: int, problem: Problem, observation: Observation) -> list[bytes]:
    """Return a question as JSON without its last brace, after which a kept decision has its answer.

    At 10,000 executors it has 15 MB. It is encoded, sent and kept in pieces of about 100 kB, so that an event loop in
    another thread gets its turn.
    """
    large: list[_Large] = []
    asked = dataclasses.replace(
        problem,
        cluster=_with_gaps(problem.cluster, large),
        traffic=None if problem.traffic is None else _with_gaps(problem.traffic, large),
    )
    first, *others = msgspec.json.encode(Question(number, asked, _with_gaps(observation, large))).split(GAP)
    pieces = [first]
    for entries, after in zip(large, others, strict=True):
        pieces += _collection_in_pieces(entries)
        pieces.append(after)
    pieces[-1] = pieces[-1].removesuffix(b"}")
    return pieces


def _with_gaps(part: S, large: list[_Large]) -> S:
    """Return a struct with gaps in the place of large collections, which are added to `large` in the order of JSON."""
    changes: dict[str, Any] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, Struct):
            gapped = _with_gaps(value, large)
            if gapped is not value:  # a default is omitted if it is the same object
                changes[name] = gapped
        elif isinstance(value, tuple | dict) and len(value) > MOST_ENTRIES:
            large.append(value)
            changes[name] = GAP
    return msgspec.structs.replace(part, **changes) if changes else part


def _collection_in_pieces(entries: _Large) -> Iterator[bytes]:
    left = iter(entries.items() if isinstance(entries, dict) else entries)
    before, end = (b"{", b"}") if isinstance(entries, dict) else (b"[", b"]")
    while some := list(islice(left, MOST_ENTRIES)):
        yield before + msgspec.json.encode(dict(some) if isinstance(entries, dict) else some)[1:-1]
        before = b","
    yield end


def encode_answer(answer: AnswerInFile) -> bytes:
    """Return the answer as JSON, with the same bytes for the same answer."""
    return msgspec.json.encode(answer)


def read_decisions(path: str | Path) -> Iterator[Located[SchedulerInFile] | Located[ResetInFile] | KeptDecision]:
    """Yield the lines of a file, the scheduler first.

    Raises:
        InputError: a line is wrong; the message names file, line, key and value.
    """
    name = printable(path)
    try:
        with Path(path).open(encoding="utf-8") as file:
            number = 0
            for number, line in enumerate(file, 1):
                yield _line(_document(name, number, line), first=number == 1)
    except UnicodeDecodeError as fault:
        raise InputError(f"{name}: not UTF-8 text (byte {fault.start})") from None
    except OSError as fault:
        raise InputError(f"{name}: cannot be read: {fault.strerror}") from None
    if not number:
        raise InputError(f"{name}: is empty")


def _document(name: str, number: int, line: str) -> Document:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise InputError(f"{name}:{number}: not a JSON document: {fault}") from None
    # So many empty lines before it that messages name its line in the file.
    return Document(name, None, json_text="\n" * (number - 1) + line)


def _line(document: Document, first: bool) -> Located[SchedulerInFile] | Located[ResetInFile] | KeptDecision:
    if first:
        return Located(document.convert(SchedulerInFile), document.origin)
    if isinstance(document.data, dict) and "reset" in document.data:
        return Located(document.convert(ResetInFile), document.origin)
    decision = document.convert(DecisionInFile)
    if len(decision.problem.topologies) != 1:
        where = document.origin / "problem" / "topologies"
        raise where.error(f"{len(decision.problem.topologies)} topologies, one was expected")
    check_observed(Located(decision.observation, document.origin / "observation"), decision.problem)
    return KeptDecision(decision, document.origin)


def main() -> None:
    """Serve one scheduler."""
    # What schedulers print must not get between the replies.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A process that is killed writes no buffers.
        sys.stdout.reconfigure(line_buffering=True)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    start = msgspec.json.decode(lines.get(), type=SchedulerInFile)
    try:
        ready = start.make()
    except MillraceError as fault:
        _reply(replies, Reply(0, time.process_time(), error=str(fault)))
        return
    used_s = time.process_time()
    _reply(replies, Reply(0, used_s))
    decoder = msgspec.json.Decoder(Question)
    while True:
        question = decoder.decode(lines.get())
        try:
            (topology,) = question.problem.topologies
            answer = encode_answer(in_file(ready.revise(question.problem, question.observation), topology.id))
        except MillraceError as fault:
            reply = Reply(question.number, time.process_time() - used_s, error=str(fault))
        else:
            reply = Reply(question.number, time.process_time() - used_s, answer=msgspec.Raw(answer))
        used_s = time.process_time()
        _reply(replies, reply)


def _read(source: BinaryIO, lines: "queue.SimpleQueue[bytes]") -> None:
    for line in source:
        lines.put(line)
    os._exit(0)


def _reply(replies: BinaryIO, reply: Reply) -> None:
    replies.write(msgspec.json.encode(reply) + b"\n")
    replies.flush()


if __name__ == "__main__":
    main()
