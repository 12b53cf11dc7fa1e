"""`millrace engine` and `millrace load`: messages without an engine, with one, and for a wrong name."""

from pathlib import Path

import pytest

from campaign.commands.main import run
from engines import installation, selection
from engines.installation import Engine
from inventory.errors import UnfitError


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "installed", lambda name: None)
    monkeypatch.setattr(selection, "installed", lambda name: None)


@pytest.mark.usefixtures("nothing_installed")
def test_engines_are_listed_whether_installed_or_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(["engine"]) == 0
    assert "storm   Apache Storm: not installed" in capsys.readouterr().out
    monkeypatch.setattr(installation, "installed", lambda name: Engine(name, tmp_path))
    assert run(["engine"]) == 0
    assert f"storm   Apache Storm: installed in {tmp_path}" in capsys.readouterr().out


def test_a_wrong_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engine", "strom"]) == 2
    assert "there is no engine 'strom'; did you mean 'storm'?" in capsys.readouterr().err


def test_a_failed_installation_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Engine:
        raise UnfitError("storm was not installed: Maven: Premature end of body")

    monkeypatch.setattr(selection, "install", fails)
    assert run(["engine", "storm"]) == 3
    assert capsys.readouterr().err == "millrace: storm was not installed: Maven: Premature end of body\n"


@pytest.mark.usefixtures("nothing_installed")
def test_without_an_engine_no_operation_can_be_timed() -> None:
    with pytest.raises(UnfitError, match="no engine is installed; millrace engine storm installs one"):
        selection.any_programs()
    with pytest.raises(UnfitError, match="Apache Storm is not installed; millrace engine storm installs it"):
        selection.ready("storm")
