"""Client of the process in which a run's online scheduler decides (`scheduler.deciding`)."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec
from msgspec import UNSET

from inventory.errors import RunError
from inventory.foreign import printable
from scheduler.deciding import Reply, ResetInFile, SchedulerInFile, question_in_pieces
from scheduler.online.observation import Observation, problem_at
from scheduler.online.revision import AnswerInFile, Revision, revision_of
from scheduler.problem import Problem

COMMAND = (sys.executable, "-P", "-m", "scheduler.deciding")
"""The command that starts the process."""

START_S = 60.0
"""Time for its start, imports included."""

MOST_LOG_BYTES = 4 << 20
"""Size from which the log of the scheduler's standard error grows no further."""

END_S = 1.0
"""Time for the rest of the output of a killed process; what it has started in a session of its own may hold a pipe."""

MOST_REPLY_BYTES = 64 << 20
"""Maximum size of a reply; one with a million moves is larger than any revision that can be carried out."""


class Answer(NamedTuple):
    """The end of a question.

    Attributes:
        revision: the checked answer; None if the scheduler has nothing to say, or if there is no answer.
        elapsed_s: seconds from the question to its end.
        cpu_s: CPU seconds of the scheduler; None without an answer.
        late: why there is no answer, if there is none; the scheduler has lost its memory.
        fault: description of a wrong answer, or of an exception of the scheduler.
    """

    revision: Revision | None
    elapsed_s: float
    cpu_s: float | None = None
    late: str = ""
    fault: str = ""


class _LateError(Exception):
    """There is no answer: the process died, or the time is over."""


class Decider:
    """One scheduler, asked one question at a time; every question and answer is kept in a file."""

    def __init__(
        self,
        scheduler: SchedulerInFile,
        decisions: Path,
        log: Path,
        deadline_s: float,
        command: Sequence[str] = COMMAND,
        start_s: float = START_S,
    ) -> None:
        """Create it; the process starts with `start` or the first question.

        Args:
            scheduler: the scheduler.
            decisions: file that keeps the decisions (`scheduler.deciding`), overwritten.
            log: file for the standard error of the process, overwritten, at most `MOST_LOG_BYTES` of it.
            deadline_s: time for an answer.
            command: starts the process.
            start_s: time for its start.

        Raises:
            RunError: a file cannot be written.
        """
        self._deadline_s, self._start_s, self._command = deadline_s, start_s, command
        self._process: asyncio.subprocess.Process | None = None
        self._logging: asyncio.Task[None] | None = None
        self._logged = 0
        self._number = 0
        self._head = msgspec.json.encode(scheduler) + b"\n"
        self._log = _create(log)
        self._file = _create(decisions)
        self._write([self._head])

    @property
    def process(self) -> int | None:
        """Process id; None while it does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process in advance.

        Raises:
            RunError: it does not start, or it cannot make the scheduler.
        """
        try:
            await self._start()
        except _LateError as fault:
            await self._kill()
            raise RunError(str(fault)) from None

    async def ask(self, problem: Problem, observation: Observation) -> Answer:
        """Ask a question; after one without an answer, the next begins with a new process.

        Args:
            problem: the topology, the cluster, and the workers of other topologies.
            observation: the window that is decided about.

        Raises:
            RunError: the file of decisions cannot be written.
        """
        self._number += 1
        question = await asyncio.to_thread(_question, self._number, problem, observation)
        begin_s = asyncio.get_running_loop().time()

        def elapsed_s() -> float:
            return round(asyncio.get_running_loop().time() - begin_s, 6)

        try:
            await self._start()
            line = await self._exchange([*question, b"}\n"], self._deadline_s)
            reply, revision = await asyncio.to_thread(self._decoded, line)
        except _LateError as late:
            await self._abort(question, str(late))
            return Answer(None, elapsed_s(), late=str(late))
        except RunError as fault:
            await self._abort(question, str(fault))
            return Answer(None, elapsed_s(), fault=str(fault))
        except asyncio.CancelledError:
            await self._abort(question, "the question was withdrawn")
            raise
        took_s = elapsed_s()
        seconds = {"elapsed_s": took_s, "cpu_s": round(reply.cpu_s, 6)}
        said = {"error": reply.error} if reply.error else {"answer": reply.answer}
        await self._keep(question, b"," + msgspec.json.encode({**said, **seconds})[1:])
        return Answer(revision, took_s, seconds["cpu_s"], fault=reply.error)

    async def reset(self, why: str) -> None:
        """End the process, between two questions; the next begins with a new one, which remembers nothing."""
        await self._kill()
        self._write([msgspec.json.encode(ResetInFile(why)), b"\n"])

    async def close(self) -> None:
        """End the process."""
        await self._kill()
        self._log.close()
        self._file.close()

    async def _start(self) -> None:
        if self._process is not None:
            return
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MOST_REPLY_BYTES,
                start_new_session=True,  # Ctrl-C is for the controller; and all that the scheduler starts ends with it
            )
        except OSError as fault:
            raise RunError(f"the scheduler's process does not start: {fault}") from None
        self._logging = asyncio.create_task(self._copy_log(cast("asyncio.StreamReader", self._process.stderr)))
        reply = _reply(await self._exchange([self._head], self._start_s), 0)
        if reply.error:
            raise RunError(reply.error)

    async def _copy_log(self, errors: asyncio.StreamReader) -> None:
        """Copy the standard error of the process to the log as it comes; beyond the bound it is discarded."""
        while errors_read := await errors.read(1 << 16):
            kept = errors_read[: max(0, MOST_LOG_BYTES - self._logged)]
            if len(kept) < len(errors_read) and self._logged <= MOST_LOG_BYTES:
                kept += f"\n[the log ends here: {MOST_LOG_BYTES >> 20} MB]\n".encode()
            self._logged += len(errors_read)
            with suppress(OSError):  # a full disk is noticed by what matters more
                self._log.write(kept)
                self._log.flush()

    async def _exchange(self, pieces: Sequence[bytes], within_s: float) -> bytes:
        """Send a document piece by piece, as they are read, and return the line that comes back."""
        process = cast("asyncio.subprocess.Process", self._process)
        stdin, stdout = cast("asyncio.StreamWriter", process.stdin), cast("asyncio.StreamReader", process.stdout)
        try:
            async with asyncio.timeout(within_s):
                for piece in pieces:
                    stdin.write(piece)
                    await stdin.drain()
                line = await stdout.readline()
        except TimeoutError:
            raise _LateError(f"the scheduler gave no answer in {within_s:g} s") from None
        except ConnectionError:
            line = b""
        except ValueError:
            raise RunError(f"the scheduler's process wrote more than {MOST_REPLY_BYTES >> 20} MB") from None
        if not line.endswith(b"\n"):
            raise _LateError(f"the scheduler's process died; see {printable(self._log.name)}")
        return line

    def _decoded(self, line: bytes) -> tuple[Reply, Revision | None]:
        reply = _reply(line, self._number)
        if reply.error:
            return reply, None
        try:
            if reply.answer is UNSET:
                raise ValueError("a reply without an answer")
            return reply, revision_of(msgspec.json.decode(reply.answer, type=AnswerInFile))
        except ValueError as fault:
            raise RunError(f"the scheduler's process wrote a wrong answer: {printable(fault)}") from None

    async def _abort(self, question: Sequence[bytes], why: str) -> None:
        await self._keep(question, b"}")
        await self.reset(why)

    async def _kill(self) -> None:
        """Kill the process and what it has started, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # asyncio notices the end of a process once its pipes have been read to their ends.
        rest = [asyncio.create_task(each) for each in (process.wait(), _discard(process.stdout))]
        if self._logging is not None:
            rest.append(self._logging)
        self._logging = None
        _, held = await asyncio.wait(rest, timeout=END_S)
        for each in held:
            each.cancel()
        if held:
            # What has left the session holds the pipes open, which asyncio would close when its loop has ended.
            cast("asyncio.SubprocessTransport", process._transport).close()  # type: ignore[attr-defined]
            await asyncio.sleep(0)

    async def _keep(self, question: Sequence[bytes], end: bytes) -> None:
        """Keep a decision: in a thread, and as a whole, also when it is cancelled meanwhile."""
        writing = asyncio.create_task(asyncio.to_thread(self._write, [*question, end, b"\n"]))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing
            raise

    def _write(self, pieces: Sequence[bytes]) -> None:
        try:
            self._file.writelines(pieces)
            self._file.flush()
        except OSError as fault:
            raise RunError(f"{printable(self._file.name)}: cannot be written: {fault.strerror}") from None


async def _discard(output: asyncio.StreamReader | None) -> None:
    while output is not None and await output.read(1 << 20):
        pass


def _create(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as fault:
        raise RunError(f"{printable(path)}: cannot be written: {fault.strerror}") from None


def _question(number: int, problem: Problem, observation: Observation) -> list[bytes]:
    """Return a question in pieces: in a thread, because 10,000 executors take a tenth of a second."""
    return question_in_pieces(number, problem_at(problem, observation), observation)


def _reply(line: bytes, number: int) -> Reply:
    try:
        reply = msgspec.json.decode(line, type=Reply)
    except (msgspec.DecodeError, RecursionError) as fault:
        shown = printable(line[:100].decode(errors="replace"))
        raise RunError(f"the scheduler's process wrote rubbish: {printable(fault)}: {shown}") from None
    if reply.number != number:
        raise RunError(f"the scheduler's process answered question {reply.number} instead of {number}")
    return reply
