"""Folders of a node: any name becomes a file of one folder; inputs are read once."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.agent.node_run import InputFiles
from agents.protocol import InputFile
from agents.protocol.node_folders import NodeFolder, file_name
from inventory.errors import RunError

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(name=names)
def test_any_name_becomes_one_path_component(name: str) -> None:
    component = file_name(name)
    assert len(component.encode()) < 255
    assert Path("folder", component).parent == Path("folder")
    assert component not in (".", "..")
    assert not component.startswith(".")


@given(one=names, other=names)
def test_different_names_become_different_files(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


def test_long_names_that_begin_alike_become_different_files() -> None:
    assert file_name("é" * 200 + "[0]") != file_name("é" * 200 + "[1]")


def test_plain_names_stay_as_they_are(tmp_path: Path) -> None:
    snapshot = NodeFolder(tmp_path).run("run-1").snapshot(7, "count[3]")
    assert snapshot == tmp_path / "run-1" / "checkpoints" / "7" / "count[3]"


def test_an_input_is_read_again_only_when_its_file_has_been_replaced(tmp_path: Path) -> None:
    copy = tmp_path / "inputs" / "text"
    copy.parent.mkdir()
    copy.write_bytes(b"one")
    inputs = InputFiles(NodeFolder(tmp_path))
    wanted = [InputFile("text", "text", hashlib.sha256(b"one").hexdigest())]
    pieces = 0

    def may_continue() -> bool:
        nonlocal pieces
        pieces += 1
        return True

    for _ in range(3):
        inputs.check(wanted, may_continue)
    assert pieces == 1
    other = tmp_path / "other"
    other.write_bytes(b"two")
    other.rename(copy)
    with pytest.raises(RunError, match="'text' differs"):
        inputs.check(wanted, may_continue)
    copy.unlink()
    with pytest.raises(RunError, match="'text' is missing"):
        inputs.check(wanted, may_continue)


def test_a_check_that_was_stopped_reports_nothing_and_is_repeated_the_next_time(tmp_path: Path) -> None:
    copy = tmp_path / "inputs" / "text"
    copy.parent.mkdir()
    copy.write_bytes(b"changed")
    inputs = InputFiles(NodeFolder(tmp_path))
    wanted = [InputFile("text", "text", hashlib.sha256(b"one").hexdigest())]
    inputs.check(wanted, lambda: False)
    with pytest.raises(RunError, match="'text' differs"):
        inputs.check(wanted, lambda: True)
