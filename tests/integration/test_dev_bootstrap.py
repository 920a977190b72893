"""`dev/bootstrap.py` as people meet it: first run, second run, and each way it can go wrong.

A tiny wheel made here stands in for the requirements, so nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dev import bootstrap
from dev.processes import wait_until
from dev.stack import ROOT

# Outside our own environment, which may have no pip of its own.
PYTHON = str(getattr(sys, "_base_executable", None) or sys.executable)


def make_wheel(folder: Path, name: str, code: str = "") -> str:
    """A wheel with one module; returns its line for the requirements."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {path: hashlib.sha256(text.encode()).digest() for path, text in files.items()}
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{len(files[path])}"
        for path, digest in digests.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


class Checkout:
    """A folder with the bootstrap and requirements that a local folder of wheels satisfies."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        (self.root / "dev").mkdir(parents=True)
        shutil.copy(ROOT / "dev" / "bootstrap.py", self.root / "dev")
        self.require(make_wheel(self.wheels, "countersign_sample"))

    def require(self, *lines: str) -> None:
        (self.root / "requirements-dev.txt").write_text("".join(lines))

    @property
    def python(self) -> Path:
        return self.root / ".venv" / "bin" / "python"

    def command(self, python: str = PYTHON) -> list[str]:
        return [python, str(self.root / "dev" / "bootstrap.py")]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        local = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        return {**kept, **local, **more}

    def run(self, python: str = PYTHON, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(python), capture_output=True, text=True, env=self.environment(**more), check=False
        )

    def has(self, module: str) -> bool:
        command = [self.python, "-c", f"import {module}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The complaint: the last line, after what it said while at work; nothing like a traceback."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert all(line.startswith("bootstrap: ") for line in lines), done.stderr
    return lines[-1]


def test_the_first_run_installs_and_the_second_does_nothing(checkout: Checkout) -> None:
    first = checkout.run()
    assert first.returncode == 0, first.stderr
    assert checkout.has("countersign_sample")
    second = checkout.run(PIP_FIND_LINKS="/nonexistent", PATH="")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


def test_a_change_of_the_requirements_is_installed_into_what_is_there(checkout: Checkout) -> None:
    checkout.run()
    kept = checkout.root / ".venv" / "kept"
    kept.touch()
    lines = (checkout.root / "requirements-dev.txt").read_text()
    checkout.require(lines, make_wheel(checkout.wheels, "countersign_second"))
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert checkout.has("countersign_second")
    assert kept.exists()


def test_an_interrupted_install_is_repaired(checkout: Checkout) -> None:
    checkout.run()
    venv = checkout.root / ".venv"
    (venv / bootstrap.STAMP).unlink()
    (venv / bootstrap.UNFINISHED).touch()
    next(venv.glob("lib/*/site-packages/countersign_sample.py")).unlink()  # pip would call it installed
    assert checkout.run().returncode == 0
    assert checkout.has("countersign_sample")
    assert not (venv / bootstrap.UNFINISHED).exists()


def test_a_kill_at_any_moment_leaves_something_the_next_run_repairs(checkout: Checkout) -> None:
    process = subprocess.Popen(
        checkout.command(), env=checkout.environment(), stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert wait_until((checkout.root / ".venv" / bootstrap.UNFINISHED).exists, seconds=20)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert checkout.has("countersign_sample")


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.run()
    checkout.python.unlink()
    checkout.python.symlink_to("/nonexistent/python")
    assert checkout.run().returncode == 0
    assert checkout.has("countersign_sample")


def test_a_copied_checkout_makes_its_own_environment(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run()
    shutil.copytree(checkout.root, tmp_path / "copy", symlinks=True)
    checkout.root = tmp_path / "copy"
    assert "removing a .venv" in checkout.run().stderr
    assert str(tmp_path / "copy") in (checkout.root / ".venv" / "bin" / "activate").read_text()


def test_one_made_by_hand_is_kept_and_completed(checkout: Checkout) -> None:
    venv = checkout.root / ".venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", venv], check=True)
    (venv / "mine").touch()
    assert checkout.run().returncode == 0
    assert (venv / "mine").exists()
    assert checkout.has("countersign_sample")


def test_it_can_rebuild_the_environment_it_is_run_from(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / ".venv" / bootstrap.UNFINISHED).touch()
    (checkout.root / ".venv" / bootstrap.STAMP).unlink()
    done = checkout.run(str(checkout.python))
    assert done.returncode == 0, done.stderr
    assert checkout.has("countersign_sample")


def test_two_at_once_do_not_spoil_each_other(checkout: Checkout) -> None:
    both = [
        subprocess.Popen(checkout.command(), env=checkout.environment(), stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert checkout.has("countersign_sample")


def test_without_network_it_says_so_in_one_line(checkout: Checkout) -> None:
    done = checkout.run(PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL="http://127.0.0.1:9/none")
    assert "packages cannot be fetched: check the network" in one_line(done)
    assert checkout.run().returncode == 0  # with the network back, nothing stands in the way


def test_a_package_that_is_not_the_pinned_one_is_refused(checkout: Checkout) -> None:
    make_wheel(checkout.wheels, "countersign_sample", "altered = True")
    assert "does not match its pinned hash" in one_line(checkout.run())


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount is needed")
@pytest.mark.parametrize(
    ("options", "words"),
    [("size=48k", "the disk is full"), ("ro", "on a read-only file system")],
)
def test_a_full_or_read_only_disk_is_one_line(options: str, words: str, checkout: Checkout) -> None:
    prepared = checkout.root.with_name("copy")
    shutil.copytree(checkout.root, prepared)
    # A mount of its own in a namespace of its own: it is gone with the command.
    script = (
        'mount -t tmpfs -o size=9m none "$1" && cp -r "$2"/. "$1" && mount -o "remount,$3" "$1" && '
        'exec "$4" "$1/dev/bootstrap.py"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "sh", checkout.root, prepared, options, PYTHON]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=checkout.environment(), check=False
    )
    if "mount" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert words in one_line(done)


def test_a_file_in_the_way_is_one_line(checkout: Checkout) -> None:
    (checkout.root / ".run").touch()
    assert "File exists" in one_line(checkout.run())


def test_missing_requirements_are_one_line(checkout: Checkout) -> None:
    (checkout.root / "requirements-dev.txt").unlink()
    assert "requirements-dev.txt is missing" in one_line(checkout.run())


def test_no_index_address_is_written_anywhere(checkout: Checkout) -> None:
    checkout.run()
    written = [path for path in checkout.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in written if b"/simple" in path.read_bytes()]
