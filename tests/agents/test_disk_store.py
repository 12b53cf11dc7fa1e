"""Snapshots, and the disk that stores them.

After a kill at any time, a file on a real disk is complete or absent. Snapshots are read back and deleted, and faults
are reported. The bytes of a snapshot give the same state back; other bytes are refused by their first bytes.
"""

import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol import Worked
from agents.worker.executors.executor import Snapshot
from agents.worker.process.answer_files import read_answer_rows
from agents.worker.process.state_store import StateStore, StoredSnapshot
from agents.worker.task_graph.interfaces import AnswerRows
from inventory.errors import RunError

RUN = "r1"
FIELDS = {"word": "str", "count": "int"}

I64 = st.integers(0, 2**63 - 1)
SNAPSHOTS = st.builds(Snapshot, st.binary(max_size=300), I64, I64, st.builds(Worked, I64, I64))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    store = StateStore(tmp_path, RUN)
    yield store
    store.close()


def stored(store: StateStore, count: int) -> list[StoredSnapshot]:
    """Wait for this number of stored snapshots; sleep until the store wakes the caller, as the loop does."""
    found: list[StoredSnapshot] = []
    while len(found) < count:
        assert select.select([store.waker], [], [], 30)[0], "nobody woke the loop"
        found += store.done()
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows_of(path: Path) -> list[tuple[object, ...]]:
    table = read_answer_rows(path, FIELDS)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_snapshot_is_read_back_as_it_was_stored_in_the_reported_file(store: StateStore, tmp_path: Path) -> None:
    snapshot = Snapshot(bytes(range(256)) * 5_000, 17, 4, Worked(8, 9))
    store.save(3, "count[1]", snapshot)
    (kept,) = stored(store, 1)
    assert store.read(3, "count[1]") == snapshot
    assert kept == StoredSnapshot(3, "count[1]", f"{RUN}/checkpoints/3/count[1]", len(snapshot.operator) + 45, 17, {})
    assert (tmp_path / kept.file).stat().st_size == kept.nbytes
    assert names_in(tmp_path / RUN / "checkpoints" / "3") == ["count[1]"]


def test_nothing_is_created_before_the_first_snapshot(tmp_path: Path) -> None:
    store = StateStore(tmp_path, RUN)
    assert store.done() == []
    store.close()
    assert names_in(tmp_path) == []


def test_snapshots_are_stored_in_the_order_of_their_requests(store: StateStore) -> None:
    names = [f"b[{at}]" for at in range(20)]
    for name in names:
        store.save(1, name, Snapshot(name.encode()))
    assert [kept.executor for kept in stored(store, 20)] == names
    assert all(store.read(1, name).operator == name.encode() for name in names)


@pytest.mark.parametrize("executor", ["../../outside[0]", "a/b[0]", ".hidden[0]", "x" * 300 + "[0]", "größe[0]"])
def test_any_name_of_an_executor_gives_a_file_in_its_folder(store: StateStore, tmp_path: Path, executor: str) -> None:
    store.save(1, executor, Snapshot(b"state"), [AnswerRows("counts", FIELDS, [("a", 1)])])
    (kept,) = stored(store, 1)
    assert store.read(1, executor).operator == b"state"
    assert (tmp_path / kept.file).parent == tmp_path / RUN / "checkpoints" / "1"
    ((path,),) = kept.answers.values()
    assert (tmp_path / path).parent == tmp_path / RUN / "answer"
    assert rows_of(tmp_path / path) == [("a", 1)]
    assert kept.executor == executor


def test_settled_rows_of_every_barrier_are_a_separate_part_of_the_answer(store: StateStore, tmp_path: Path) -> None:
    parts = [[("a", 1), ("b", 2)], [("c", 3)], []]
    for barrier, rows in enumerate(parts, 1):
        store.save(barrier, "top[0]", Snapshot(b""), [AnswerRows("counts", FIELDS, rows)])
    files = [kept.answers["counts"] for kept in stored(store, 3)]
    last = store.write_answer("top[0]", AnswerRows("counts", FIELDS, [("d", 4)]))["counts"]
    paths = [path for (path,) in [*files, last]]
    assert len(set(paths)) == 4
    assert [rows_of(tmp_path / path) for path in paths] == [*parts, [("d", 4)]]
    assert not [name for name in names_in(tmp_path / RUN / "answer") if name.startswith(".")]


def test_a_sink_of_several_tables_has_a_file_for_each(store: StateStore, tmp_path: Path) -> None:
    store.save(1, "sink[0]", Snapshot(b""), [AnswerRows(table, FIELDS, [(table, 1)]) for table in ("house", "plug")])
    (kept,) = stored(store, 1)
    found = {table: [rows_of(tmp_path / path) for path in paths] for table, paths in kept.answers.items()}
    assert found == {"house": [[("house", 1)]], "plug": [[("plug", 1)]]}


def test_older_snapshots_are_deleted_and_only_those(store: StateStore, tmp_path: Path) -> None:
    for barrier in (8, 9, 10, 11):
        for name in ("a[0]", "b[0]"):
            store.save(barrier, name, Snapshot(f"{barrier}{name}".encode()))
    (tmp_path / RUN / "checkpoints").mkdir(parents=True, exist_ok=True)
    (tmp_path / RUN / "checkpoints" / "notes").write_text("somebody else's")
    store.delete_before(10)
    store.save(12, "a[0]", Snapshot(b""))
    stored(store, 9)
    assert names_in(tmp_path / RUN / "checkpoints") == ["10", "11", "12", "notes"]
    assert store.read(10, "b[0]").operator == b"10b[0]"
    with pytest.raises(RunError, match=r"checkpoints/9/a\[0\] cannot be read: No such file"):
        store.read(9, "a[0]")


def test_deletion_without_stored_snapshots_has_no_effect(store: StateStore) -> None:
    store.delete_before(5)
    store.save(6, "a[0]", Snapshot(b"x"))
    assert [kept.barrier for kept in stored(store, 1)] == [6]


def test_a_snapshot_that_is_not_whole_is_refused_by_name(store: StateStore, tmp_path: Path) -> None:
    store.save(3, "a[0]", Snapshot(b"x" * 1_000, 5, 5))
    stored(store, 1)
    path = tmp_path / RUN / "checkpoints" / "3" / "a[0]"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"checkpoints/3/a\[0\] is a snapshot of 1044 bytes that had 1045"):
        store.read(3, "a[0]")


def test_a_disk_that_does_not_take_a_snapshot_is_reported_and_the_next_one_is_tried(
    store: StateStore, tmp_path: Path
) -> None:
    (tmp_path / RUN / "checkpoints").mkdir(parents=True)
    (tmp_path / RUN / "checkpoints" / "1").write_text("in the way")
    store.save(1, "a[0]", Snapshot(b"x"))
    with pytest.raises(RunError, match=r"a snapshot cannot be stored: .*checkpoints/1"):
        stored(store, 1)
    store.save(2, "a[0]", Snapshot(b"y"))
    assert [kept.barrier for kept in stored(store, 1)] == [2]


def test_rows_that_do_not_follow_their_schema_are_reported_and_name_the_executor(store: StateStore) -> None:
    store.save(1, "top[0]", Snapshot(b""), [AnswerRows("counts", FIELDS, [("a", "many")])])
    with pytest.raises(RunError, match=r"top\[0\]: the answer does not follow"):
        stored(store, 1)


class Odd(BaseException):
    """An exception outside all expected classes."""


class Unruly:
    """A value that cannot be read as a row."""

    def __iter__(self) -> Iterator[object]:
        raise Odd("no row")


@pytest.mark.parametrize(
    ("fields", "rows", "reason"),
    [
        (FIELDS, [1, 2], "TypeError: "),
        (FIELDS, [Unruly()], "Odd: no row"),
        (FIELDS, [("a",)], "zip"),
        ({"word": "text"}, [("a",)], "KeyError: 'text'"),
        (None, [("a",)], "AttributeError: "),
    ],
)
def test_any_fault_of_an_operators_rows_is_reported_and_the_next_snapshot_is_stored(
    store: StateStore, fields: dict[str, str], rows: list[tuple[object, ...]], reason: str
) -> None:
    store.save(1, "top[0]", Snapshot(b""), [AnswerRows("counts", fields, rows)])
    with pytest.raises(
        RunError, match=rf"^a snapshot cannot be stored: top\[0\]: the answer does not follow .*{reason}"
    ):
        stored(store, 1)
    store.save(2, "top[0]", Snapshot(b""))
    assert [kept.barrier for kept in stored(store, 1)] == [2]


def test_the_writer_thread_survives_an_unexpected_exception(store: StateStore) -> None:
    store.save(1, "a[0]", Snapshot(None))  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"a snapshot cannot be stored: TypeError: .*NoneType"):
        stored(store, 1)
    store.save(6, "a[0]", Snapshot(b"x"))
    assert [kept.barrier for kept in stored(store, 1)] == [6]


def test_closing_waits_for_all_requested_snapshots(tmp_path: Path) -> None:
    store = StateStore(tmp_path, RUN)
    for at in range(30):
        store.save(1, f"b[{at}]", Snapshot(bytes(10_000)))
    store.close()
    assert len(names_in(tmp_path / RUN / "checkpoints" / "1")) == 30


def test_every_file_is_synced_before_its_name_is_final_and_its_folder_afterwards(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A power failure cannot be tested here; the order of calls that decides its outcome can.
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def stable_name(name: str) -> str:
        return re.sub(r"[0-9a-f]{8}(?=\.partial)", "?", name)

    def watched_fsync(descriptor: int) -> None:
        calls.append(("sync", stable_name(Path(f"/proc/self/fd/{descriptor}").readlink().name)))
        fsync(descriptor)

    def watched_replace(self: Path, target: Path) -> Path:
        calls.append(("rename", stable_name(self.name)))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    store.save(7, "a[0]", Snapshot(b"x"), [AnswerRows("counts", FIELDS, [("a", 1)])])
    stored(store, 1)
    answer = "counts-a[0]@7.part"
    assert calls[:-2] == [
        ("sync", ".a[0].?.partial"),
        ("rename", ".a[0].?.partial"),
        ("rename", f".{answer}.?.partial"),
        ("sync", answer),
    ]
    assert sorted(calls[-2:]) == [("sync", "7"), ("sync", "answer")]


def test_a_folder_is_synced_once_for_all_waiting_snapshots_and_before_any_is_reported(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    started, queued = Event(), Event()
    fsync = os.fsync

    def watched_fsync(descriptor: int) -> None:
        started.set()
        assert queued.wait(30)
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        synced.append(name if name in {"7", "8"} else "file")
        fsync(descriptor)
        if name == "8":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", watched_fsync)
    store.save(7, "a[0]", Snapshot(b"x"))
    assert started.wait(30)
    for name in ("b[0]", "c[0]", "d[0]"):
        store.save(7, name, Snapshot(b"x"))
    queued.set()
    assert [kept.executor for kept in stored(store, 4)] == ["a[0]", "b[0]", "c[0]", "d[0]"]
    assert synced == ["file", "7", "file", "file", "file", "7"]
    store.save(8, "a[0]", Snapshot(b"x"))
    with pytest.raises(RunError, match=r"a snapshot cannot be stored: .*No space left"):
        stored(store, 1)


WRITER = """
import resource
import signal
import sys
from pathlib import Path
from agents.worker.executors.executor import Snapshot
from agents.worker.process.state_store import StateStore

store = StateStore(Path(sys.argv[1]), "r1")
fatal = int(sys.argv[2])
for at in range(1_000_000):
    if at == fatal:
        # The kernel kills it in the middle of its next file.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    store.save(at % 3 + 1, "a[0]", Snapshot(bytes([at % 251]) * 2_000_000, at, at % 7))
    while not store.done():
        pass
"""


def check_whole(node: Path) -> list[int]:
    """Check that all files under final names are complete; return the sizes of partial files."""
    reader, sizes = StateStore(node, RUN), []
    for path in (node / RUN / "checkpoints").glob("*/*"):
        if path.name.startswith("."):
            sizes.append(path.stat().st_size)
            continue
        snapshot = reader.read(int(path.parent.name), path.name)
        assert snapshot.operator == bytes([snapshot.position % 251]) * 2_000_000
        assert snapshot.next_tick == snapshot.position % 7
    reader.close()
    return sizes


@pytest.mark.parametrize("snapshot", [0, 1, 4])
def test_a_worker_that_dies_in_the_middle_of_a_file_leaves_whole_snapshots_only(tmp_path: Path, snapshot: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(snapshot)]
    result = subprocess.run(command, timeout=60)
    assert result.returncode == -signal.SIGXFSZ
    assert check_whole(tmp_path) == [1_000_000]
    assert len(list((tmp_path / RUN / "checkpoints").glob("*/a*"))) == min(snapshot, 3)


@pytest.mark.long
def test_a_worker_killed_while_it_writes_leaves_whole_snapshots_only(tmp_path: Path) -> None:
    for files in range(4):
        node = tmp_path / str(files)
        folder = node / RUN / "checkpoints"
        with subprocess.Popen([sys.executable, "-c", WRITER, str(node), "-1"]) as writer:
            deadline = time.monotonic() + 60
            while len(list(folder.glob("*/a*"))) < files or not list(folder.glob("*/.*")):
                assert time.monotonic() < deadline
            writer.send_signal(signal.SIGKILL)
        check_whole(node)


def test_a_disk_without_room_is_reported(store: StateStore, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        store.save(1, "a[0]", Snapshot(bytes(2_000_000)))
        with pytest.raises(RunError, match=r"a snapshot cannot be stored: .*File too large"):
            stored(store, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(RunError, match=r"cannot be read"):
        store.read(1, "a[0]")


def in_bytes(snapshot: Snapshot) -> bytes:
    return b"".join(snapshot.pieces())


@given(SNAPSHOTS)
def test_a_snapshot_comes_back_as_it_was(snapshot: Snapshot) -> None:
    assert Snapshot.read(in_bytes(snapshot)) == snapshot


def test_the_operators_state_is_not_copied() -> None:
    state = bytes(1_000_000)
    assert Snapshot(state, 5, 2).pieces()[-1] is state


@given(SNAPSHOTS, st.data())
def test_a_snapshot_that_is_not_whole_is_refused(snapshot: Snapshot, data: st.DataObject) -> None:
    whole = in_bytes(snapshot)
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(RunError, match=r"snapshot"):
        Snapshot.read(torn)
    with pytest.raises(RunError, match=r"snapshot"):
        Snapshot.read(whole + b"x")


@pytest.mark.parametrize("wrong", [b"", b"MLRS", b"MLRX" + bytes(60), b"ARROW1" + bytes(60), b"MLRS\x01" + bytes(60)])
def test_other_bytes_are_refused_by_their_first_bytes(wrong: bytes) -> None:
    with pytest.raises(RunError, match=rf"{len(wrong)} bytes"):
        Snapshot.read(wrong)


@given(st.binary(max_size=200))
def test_rubbish_is_refused(rubbish: bytes) -> None:
    with pytest.raises(RunError):
        Snapshot.read(rubbish)
