"""The bootstrap's decisions: what to say about a failure, which Python, what to install first."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from dev import bootstrap
from dev.stack import ROOT


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk is full",
        ),
        ("error: failed to write: No space left on device (os error 28)", "disk is full"),
        ("[Errno 30] Read-only file system: '/x/.venv'", "read-only file system"),
        ("[Errno 13] Permission denied: '/x/.venv'", "no permission to write"),
        (
            "WARNING: Retrying … NewConnectionError('…: Failed to establish a new connection')",
            "check the network",
        ),
        (
            "error: Failed to fetch: `…`\n  Caused by: dns error: failed to lookup address",
            "check the network",
        ),
        ("ERROR: No matching distribution found for uv==0.1", "check the network"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "pinned hash"),
        ("SSLError(SSLCertVerificationError(1, 'certificate verify failed'))", "certificate is not trusted"),
        ("error: no wheels with a matching platform tag", "no wheel for this machine"),
        ("something new\nwent wrong\n", "went wrong"),
        ("", "without a word"),
    ],
)
def test_a_failure_becomes_advice(output: str, advice: str) -> None:
    said = bootstrap.remedy(output)
    assert advice in said
    assert "\n" not in said


def test_a_disk_full_of_downloads_is_not_taken_for_a_network_failure() -> None:
    both = "Could not fetch …\nOSError: [Errno 28] No space left on device"
    assert "disk is full" in bootstrap.remedy(both)


def test_an_old_python_goes_on_under_a_newer_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in (("python3.13", "exit 127"), ("python3.12", "exit 0")):  # the first is a dead shim
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    became: list[str] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "execv", lambda program, _: became.append(program))
    with pytest.raises(bootstrap.BootstrapError):
        bootstrap.exec_newer()
    assert became[0] == str(tmp_path / "python3.12")


def test_an_old_python_alone_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 2))
    assert bootstrap.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("bootstrap: Python 3.11 or newer is needed, this is 3.9.2: install")
    assert "make PYTHON=" in said


@pytest.mark.parametrize(("given", "quiet"), [("", 1), ("-q", 1), ("-k lease -x", 0)])
def test_make_test_is_quiet_once_and_hands_arguments_on(given: str, quiet: int) -> None:
    command = ["make", "--dry-run", "--no-print-directory", "-C", str(ROOT), "test", f"ARGS={given}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert "pytest" in said
    assert said.split().count("-q") == quiet
    assert said.endswith(given)


def test_a_missing_venv_module_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(bootstrap.BootstrapError, match=r"apt-get install python3\.\d+-venv"):
        bootstrap._create(tmp_path / ".venv")


def test_without_pip_and_ensurepip_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(
        bootstrap,
        "_attempt",
        lambda command: subprocess.CompletedProcess(command, 1, "", "No module named pip"),
    )
    with pytest.raises(bootstrap.BootstrapError, match=r"apt-get install python3\.\d+-venv python3-pip"):
        bootstrap._pip(tmp_path)


def test_an_old_pip_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def attempt(command: list[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "pip 20.3.4 from /x", "")

    monkeypatch.setattr(bootstrap, "_attempt", attempt)
    assert bootstrap._pip(tmp_path)[:3] == [str(tmp_path / "bin" / "python"), "-m", "pip"]
    assert commands[-1][1:] == ["-m", "ensurepip"]


def test_uv_is_pinned_with_its_hashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr(bootstrap, "_run", lambda command, _: asked.append(Path(command[-1]).read_text()))
    assert bootstrap._uv(tmp_path, ["pip"], ROOT / "requirements-dev.txt") == str(tmp_path / "bin" / "uv")
    lines = asked[0].splitlines()
    assert lines[0].startswith("uv==")
    assert len(lines) > 5
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])


def test_the_caller_s_python_settings_do_not_lead_packages_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PIP_TARGET", "PIP_USER"):
        monkeypatch.setenv(name, "elsewhere")
    assert "elsewhere" not in bootstrap._attempt(["/usr/bin/env"]).stdout


def test_our_files_name_no_package_source() -> None:
    files = [ROOT / "Makefile", ROOT / ".ci" / "run", *ROOT.glob("requirements*.txt"), *ROOT.glob("dev/*.py")]
    for file in files:
        assert "pypi" not in file.read_text().casefold(), file
