"""Original state of a host: saved once, and kept until it has been restored."""

import json

import pytest
from ansible_modules import module_utils, run_module
from hypothesis import given
from hypothesis import strategies as st

pre_state = module_utils("millrace_pre_state")
BOOT, NEXT_BOOT = "boot-1", "boot-2"


def test_a_saved_section_is_never_overwritten(tmp_path):
    state = pre_state.PreState(tmp_path, BOOT)
    assert state.save("user", {"existed": False})
    assert not state.save("user", {"existed": True})
    assert pre_state.PreState(tmp_path, BOOT).section("user")["before"] == {"existed": False}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(), st.booleans())))
def test_after_any_number_of_saves_each_section_has_its_first_value(tmp_path_factory, saves):
    folder = tmp_path_factory.mktemp("state")
    first = {}
    for name, value, volatile in saves:
        first.setdefault(name, value)
        pre_state.PreState(folder, BOOT).save(name, {"value": value}, volatile)
    found = pre_state.PreState(folder, BOOT).sections()
    assert {name: section["before"]["value"] for name, section in found.items()} == first
    assert [path.name for path in folder.iterdir()] == (["pre_state.json"] if saves else [])


def test_volatile_sections_are_void_after_a_reboot_and_others_are_not(tmp_path):
    state = pre_state.PreState(tmp_path, BOOT)
    state.save("cpu", {"governor": "ondemand"}, volatile=True)
    state.save("user", {"existed": False})
    after = pre_state.PreState(tmp_path, NEXT_BOOT)
    assert set(after.sections()) == {"user"}
    assert after.save("cpu", {"governor": "schedutil"}, volatile=True)
    assert after.section("cpu")["before"] == {"governor": "schedutil"}


def test_the_file_and_folder_are_removed_with_the_last_section(tmp_path):
    state = pre_state.PreState(tmp_path / "state", BOOT)
    state.save("cpu", {}, volatile=True)
    state.save("user", {})
    assert state.drop("user")
    assert state.path.is_file()
    assert state.drop("cpu")
    assert not (tmp_path / "state").exists()
    assert not state.drop("cpu")


def test_a_file_with_only_sections_of_an_earlier_boot_is_removed(tmp_path):
    pre_state.PreState(tmp_path, BOOT).save("cpu", {}, volatile=True)
    assert not pre_state.PreState(tmp_path, NEXT_BOOT).drop("cpu")
    assert not (tmp_path / "pre_state.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "sections": {}}', '{"version": 1, "sections": 3}'])
def test_a_file_in_another_format_is_refused_and_not_changed(tmp_path, text):
    (tmp_path / "pre_state.json").write_text(text)
    with pytest.raises(pre_state.PreStateError, match=r"pre_state\.json"):
        pre_state.PreState(tmp_path, BOOT).save("user", {})
    assert (tmp_path / "pre_state.json").read_text() == text


def test_the_module_saves_reads_and_drops_sections(tmp_path):
    def run(check=False, **arguments):
        return run_module("millrace_pre_state", {"folder": str(tmp_path / "state"), **arguments}, check)

    section = {"section": "user", "before": {"existed": True}}
    assert run(check=True, **section)["changed"]
    assert not (tmp_path / "state").exists()
    assert run(**section)["changed"]
    again = run(section="user", before={"existed": False})
    assert not again["changed"]
    assert again["section"]["before"] == {"existed": True}
    assert run(state="read")["sections"] == json.loads((tmp_path / "state/pre_state.json").read_text())["sections"]
    assert run(section="user", state="absent")["changed"]
    assert not run(section="user", state="absent")["changed"]
    assert not (tmp_path / "state").exists()
