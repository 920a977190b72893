"""Where the browser tests look for a browser, and where they may do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import browser


def install(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).touch(0o755)
    return str(folder)


def test_the_variable_comes_first_then_the_usual_names_in_order(tmp_path: Path) -> None:
    path = install(tmp_path, "google-chrome", "chromium", "chromium-browser", "mine")
    assert browser.find({"PATH": path, "CHROMIUM": f"{path}/mine"}) == f"{path}/mine"
    for name in browser.NAMES:
        assert browser.find({"PATH": path, "CHROMIUM": ""}) == f"{path}/{name}"
        (tmp_path / name).unlink()
    assert browser.find({"PATH": path}) is None


def test_a_wrong_variable_finds_nothing(tmp_path: Path) -> None:
    path = install(tmp_path, "chromium")
    assert browser.find({"PATH": path, "CHROMIUM": f"{path}/missing"}) is None


@pytest.mark.parametrize(
    ("ci", "may_be_missing"), [("true", False), ("1", False), ("", True), ("false", True)]
)
def test_in_ci_it_must_be_there(ci: str, may_be_missing: bool) -> None:
    assert browser.may_be_missing({"CI": ci}) is may_be_missing
    assert browser.may_be_missing({})
