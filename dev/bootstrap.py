"""Make `.venv` and install the pinned requirements: `python3 dev/bootstrap.py`. Standard library only.

A finished environment carries a stamp (requirements, Python, place); with a matching one this costs
milliseconds. Whatever goes wrong becomes one line on stderr that says what to do, with exit status 1.
Packages come from where pip on this machine is set up to get them; no address is written anywhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.14")
# With an activated .venv `python3` is the one inside, which cannot rebuild what it runs from.
PYTHON = str(getattr(sys, "_base_executable", None) or sys.executable)
STAMP = "countersign-stamp"
UNFINISHED = "countersign-unfinished"

# What pip is told by the environment, under the names by which uv listens.
FOR_UV = {"SSL_CERT_FILE": "PIP_CERT", "UV_DEFAULT_INDEX": "PIP_INDEX_URL"}

# Words of pip, uv and the operating system -> what to do. The first that matches is said.
REMEDIES = (
    (
        r"No space left|ENOSPC|Disk quota|os error 28",
        "the disk is full: free about 550 MB and run make again",
    ),
    (
        r"hash(es)? (mismatch|do not match)|DO NOT MATCH THE HASHES",
        "a downloaded package does not match its pinned hash: run make again; trust no source where it stays so",
    ),
    (
        r"Read-only file system|EROFS|os error 30",
        "this folder is on a read-only file system: copy the checkout elsewhere",
    ),
    (
        r"Permission denied|EACCES|os error 13",
        "no permission to write here: make the checkout's owner run make, or remove .venv and .run",
    ),
    (
        r"certificate verify failed|CERTIFICATE_VERIFY|invalid peer certificate|SSLError",
        "the package source's certificate is not trusted: set PIP_CERT and SSL_CERT_FILE to your proxy's",
    ),
    (
        (
            r"NewConnectionError|Failed to establish|Temporary failure|Name or service|Could not connect|"
            r"Connection refused|timed out|Network is unreachable|error sending request|dns error|"
            r"ConnectTimeout|No matching distribution|Could not fetch|not found in the package registry|"
            r"ProxyError|Failed to fetch"
        ),
        "packages cannot be fetched: check the network (or PIP_INDEX_URL, HTTPS_PROXY) and run make again",
    ),
    (
        r"only-binary|No solution found|is not a supported wheel|no wheels with a matching",
        "a pinned package has no wheel for this machine: use Linux (glibc) or macOS with CPython 3.11-3.13",
    ),
)


class BootstrapError(Exception):
    """One line for the person at the keyboard."""


def main() -> int:
    """Run it; 0 done, 1 with one line on stderr, 130 on Ctrl-C."""
    try:
        if sys.version_info < OLDEST:
            exec_newer()
        prepare(ROOT)
    except BootstrapError as error:
        sys.stderr.write("bootstrap: {}\n".format(error))  # noqa: UP032 (read by old Pythons too)
        return 1
    except OSError as error:
        sys.stderr.write("bootstrap: {}\n".format(remedy(str(error))))  # noqa: UP032
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("bootstrap: interrupted; run make again, it will repair what is half done\n")
        return 130
    return 0


def exec_newer() -> None:
    """Go on under a newer Python of this machine; returns never."""
    for name in NEWER:
        found = shutil.which(name)
        # It is run first: a pyenv shim exists for versions that are not active.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            os.execv(found, [found, *sys.argv])
    have = ".".join(map(str, sys.version_info[:3]))
    raise BootstrapError(
        f"Python 3.11 or newer is needed, this is {have}: install a newer one beside it and name it, "
        "make PYTHON=/path/to/python3.12 …"
    )


def prepare(root: Path) -> None:
    """Bring `root/.venv` up to date with `root/requirements-dev.txt`."""
    requirements = root / "requirements-dev.txt"
    if not requirements.is_file():
        raise BootstrapError(f"{requirements} is missing: check the clone out again")
    venv = root / ".venv"
    wanted = stamp(venv, requirements)
    if is_current(venv, wanted):
        return
    with _lock(root):
        if is_current(venv, wanted):  # another make finished it while we waited
            return
        if needs_rebuild(venv):
            _remove(venv)
            _create(venv)
        (venv / STAMP).unlink(missing_ok=True)
        (venv / UNFINISHED).touch()
        say("installing the pinned packages into .venv")
        install(venv, requirements)
        (venv / STAMP).write_text(wanted)
        (venv / UNFINISHED).unlink(missing_ok=True)


def stamp(venv: Path, requirements: Path) -> str:
    """What an environment was made of. Its place counts too: scripts inside name it, so a copy is no good."""
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    return f"{digest}\npython {sys.version_info[0]}.{sys.version_info[1]}\n{venv}\n"


def is_current(venv: Path, wanted: str) -> bool:
    """A finished environment of exactly these requirements whose Python still exists."""
    try:
        return (venv / STAMP).read_text() == wanted and os.access(venv / "bin" / "python", os.X_OK)
    except OSError:
        return False


def needs_rebuild(venv: Path) -> bool:
    """True unless it is whole, here, and of our Python: pip cannot tell half an install from a whole one."""
    if (venv / UNFINISHED).exists() or not os.access(venv / "bin" / "python", os.X_OK):
        return True
    try:
        made_of = (venv / STAMP).read_text().splitlines()[1:]
    except OSError:
        made_of = []  # made by hand: kept, what is missing is added
    version = f"python {sys.version_info[0]}.{sys.version_info[1]}"
    code = "import sys; print('python %d.%d' % sys.version_info[:2])"
    asked = subprocess.run([venv / "bin" / "python", "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() != version or made_of not in ([], [version, str(venv)])


def _lock(root: Path) -> TextIO:
    """Two makes at once in one folder: the second waits here until the first is done (or dead)."""
    (root / ".run").mkdir(exist_ok=True)
    file = (root / ".run" / "bootstrap.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another make is installing here; waiting for it")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _remove(venv: Path) -> None:
    if venv.is_symlink() or venv.is_file():
        venv.unlink()
    elif venv.exists():
        say("removing a .venv that is half installed or of another Python")
        shutil.rmtree(venv)


def _create(venv: Path) -> None:
    """An environment without pip (0.1 s instead of 3 s): packages come in by uv or a pip from outside."""
    if importlib.util.find_spec("venv") is None:
        raise BootstrapError(f"Python's venv module is missing: apt-get install {_debian_package()}")
    venv.mkdir()
    (venv / UNFINISHED).touch()
    _run([PYTHON, "-m", "venv", "--without-pip", str(venv)], "cannot make .venv")


def install(venv: Path, requirements: Path) -> None:
    """With the pinned uv (seconds); where it cannot reach what pip can (mirrors in pip.conf), with pip."""
    pip = _pip(venv)
    if uv := _uv(venv, pip, requirements):
        command = [uv, "pip", "install", "--quiet", "--no-progress", "--python", str(venv / "bin" / "python")]
        # Where Python may not keep what it compiles, every process of ours would compile everything again.
        compiled = ["--compile-bytecode"] if sys.dont_write_bytecode else []
        answer = _attempt([*command, *compiled, "--require-hashes", "--requirement", str(requirements)])
        if answer.returncode == 0:
            return
        say("uv could not install; trying pip, which takes longer")
    _run([*pip, "--require-hashes", "--requirement", str(requirements)], "cannot install")


def _uv(venv: Path, pip: list[str], requirements: Path) -> str | None:
    """The uv pinned in the requirements, installed first and alone: also the first look at the network."""
    found = re.search(r"^uv==(?:.*\\\n)*.*$", requirements.read_text(), re.MULTILINE)
    if found is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=venv) as file:
        file.write(found[0] + "\n")
        file.flush()
        _run([*pip, "--require-hashes", "--no-deps", "--requirement", file.name], "cannot install uv")
    return str(venv / "bin" / "uv")


def _pip(venv: Path) -> list[str]:
    """A pip that installs into `venv`: that of the Python we run under, else one that ensurepip brings."""
    quiet = ["install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2"]
    quiet += ["--root-user-action", "ignore", "--no-warn-script-location"]
    python = str(venv / "bin" / "python")
    asked = _attempt([PYTHON, "-m", "pip", "--version"])
    version = re.match(r"pip (\d+)\.(\d+)", asked.stdout)
    if version and (int(version[1]), int(version[2])) >= (22, 3):  # the first that knows --python
        return [PYTHON, "-m", "pip", "--python", python, *quiet]
    if importlib.util.find_spec("ensurepip") is None:
        raise BootstrapError(f"pip is missing: apt-get install {_debian_package()} python3-pip")
    _run([python, "-m", "ensurepip"], "cannot install pip")
    return [python, "-m", "pip", *quiet]


def _debian_package() -> str:
    return f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"


def _attempt(command: list[str]) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH and PIP_TARGET of the caller would send packages elsewhere.
    left_out = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "VIRTUAL_ENV"}
    environment = {uv: os.environ[pip] for uv, pip in FOR_UV.items() if os.environ.get(pip)}
    environment |= {name: value for name, value in os.environ.items() if name not in left_out}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )


def _run(command: list[str], what: str) -> None:
    answer = _attempt(command)
    if answer.returncode != 0:
        raise BootstrapError(f"{what}: {remedy(answer.stdout + answer.stderr)}")


def remedy(output: str) -> str:
    """What to do about the output of a failed step; its last line when it is not known."""
    for pattern, advice in REMEDIES:
        if re.search(pattern, output, re.IGNORECASE):
            return advice
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word; run make again"


def say(text: str) -> None:
    sys.stderr.write(f"bootstrap: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
