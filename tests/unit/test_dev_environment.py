"""The files `.run/env` and `.run/secrets`, and the environment of a local Countersign."""

from __future__ import annotations

import base64
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.environment import base_environment, keep_secrets, make_folder, read_values, write_private
from dev.processes import DevError


def test_values_survive_the_file_and_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "env"
    values = {"URL": "postgresql://u:p@db.example/x?a=1&b=2", "PLAIN": "http://127.0.0.1:1", "EMPTY": ""}
    write_private(path, values)
    assert read_values(path) == values
    shell = subprocess.run(
        ["/bin/sh", "-c", f'. {path}; printf %s "$URL"'], capture_output=True, text=True, check=True
    )
    assert shell.stdout == values["URL"]
    assert "PLAIN=http://127.0.0.1:1\n" in path.read_text()


def test_only_the_owner_reads_it_and_nothing_half_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("OLD=1\n")
    path.chmod(0o644)
    write_private(path, {"NEW": "2"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["env"]


def test_a_missing_or_damaged_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    assert read_values(tmp_path / "none") == {}
    (tmp_path / "env").write_text("A=1\nnonsense\nB='unfinished\nC=3\n")
    assert read_values(tmp_path / "env") == {"A": "1", "C": "3"}


def test_secrets_are_made_once_and_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    first = keep_secrets(path)
    key_id, _, key = first["TOKEN_KEYS"].partition(":")
    assert key_id
    assert len(base64.b64decode(key)) == 32
    assert keep_secrets(path) == first
    write_private(path, {name: value for name, value in first.items() if name != "SECRET_KEY"})
    assert {**keep_secrets(path), "SECRET_KEY": ""} == {**first, "SECRET_KEY": ""}


def test_what_is_given_wins_but_an_empty_variable_is_not_given(tmp_path: Path) -> None:
    given = {"SECRET_KEY": "mine", "MAIL_FROM": "", "PATH": "/somewhere"}
    made = base_environment(given, {"SECRET_KEY": "kept"}, tmp_path)
    assert made["SECRET_KEY"] == "mine"
    assert made["MAIL_FROM"].endswith("<verify@countersign.example>")
    assert made["ALLOW_RESERVED_DOMAINS"] == "1"
    assert made["PATH"] == f"{Path(sys.executable).parent}:/somewhere"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DevError, match="cannot write in") as caught:
        make_folder(tmp_path / "file" / "below")
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_named_once_with_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DevError) as caught:
        make_folder(tmp_path)
    assert str(caught.value).endswith("(No space left on device): free about 550 MB of disk space")


@pytest.mark.parametrize(("user", "mode"), [(0, 0o711), (1000, 0o700)])
def test_the_folder_is_closed_to_others_though_root_s_lets_postgresql_pass(
    user: int, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    make_folder(tmp_path / "run")
    assert (tmp_path / "run").stat().st_mode & 0o777 == mode
