"""What a host was like is kept once, and until it has been put back."""

import json

import pytest
from ansible_modules import module_utils, run_module
from hypothesis import given
from hypothesis import strategies as st

pre_state = module_utils("millrace_pre_state")
BOOT, NEXT_BOOT = "boot-1", "boot-2"


def test_what_was_found_first_is_never_overwritten(tmp_path):
    kept = pre_state.PreState(tmp_path, BOOT)
    assert kept.save("user", {"existed": False})
    assert not kept.save("user", {"existed": True})
    assert pre_state.PreState(tmp_path, BOOT).section("user")["before"] == {"existed": False}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(), st.booleans())))
def test_after_any_number_of_saves_each_section_is_as_at_its_first(tmp_path_factory, saves):
    folder = tmp_path_factory.mktemp("state")
    first = {}
    for name, value, volatile in saves:
        first.setdefault(name, value)
        pre_state.PreState(folder, BOOT).save(name, {"value": value}, volatile)
    found = pre_state.PreState(folder, BOOT).sections()
    assert {name: section["before"]["value"] for name, section in found.items()} == first
    assert [path.name for path in folder.iterdir()] == (["pre_state.json"] if saves else [])


def test_what_a_reboot_undoes_is_void_after_it_and_the_rest_is_not(tmp_path):
    kept = pre_state.PreState(tmp_path, BOOT)
    kept.save("cpu", {"governor": "ondemand"}, volatile=True)
    kept.save("user", {"existed": False})
    after = pre_state.PreState(tmp_path, NEXT_BOOT)
    assert set(after.sections()) == {"user"}
    assert after.save("cpu", {"governor": "schedutil"}, volatile=True)
    assert after.section("cpu")["before"] == {"governor": "schedutil"}


def test_the_file_goes_with_its_last_section_and_the_folder_with_the_file(tmp_path):
    kept = pre_state.PreState(tmp_path / "state", BOOT)
    kept.save("cpu", {}, volatile=True)
    kept.save("user", {})
    assert kept.drop("user")
    assert kept.path.is_file()
    assert kept.drop("cpu")
    assert not (tmp_path / "state").exists()
    assert not kept.drop("cpu")


def test_a_file_with_nothing_but_sections_of_an_earlier_boot_goes_too(tmp_path):
    pre_state.PreState(tmp_path, BOOT).save("cpu", {}, volatile=True)
    assert not pre_state.PreState(tmp_path, NEXT_BOOT).drop("cpu")
    assert not (tmp_path / "pre_state.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "sections": {}}', '{"version": 1, "sections": 3}'])
def test_a_file_that_is_not_ours_stops_everything(tmp_path, text):
    (tmp_path / "pre_state.json").write_text(text)
    with pytest.raises(pre_state.PreStateError, match=r"pre_state\.json"):
        pre_state.PreState(tmp_path, BOOT).save("user", {})
    assert (tmp_path / "pre_state.json").read_text() == text


def test_the_module_keeps_reads_and_forgets(tmp_path):
    def ask(check=False, **arguments):
        return run_module("millrace_pre_state", {"folder": str(tmp_path / "state"), **arguments}, check)

    keep = {"section": "user", "before": {"existed": True}}
    assert ask(check=True, **keep)["changed"]
    assert not (tmp_path / "state").exists()
    assert ask(**keep)["changed"]
    again = ask(section="user", before={"existed": False})
    assert not again["changed"]
    assert again["section"]["before"] == {"existed": True}
    assert ask(state="read")["sections"] == json.loads((tmp_path / "state/pre_state.json").read_text())["sections"]
    assert ask(section="user", state="absent")["changed"]
    assert not ask(section="user", state="absent")["changed"]
    assert not (tmp_path / "state").exists()
