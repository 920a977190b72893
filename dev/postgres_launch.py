"""PostgreSQL refuses to run as root: how to start it all the same, without opening anybody's folder."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dev.processes import DevError


@dataclass(frozen=True)
class Launch:
    """How to start a PostgreSQL program: what goes before it, as whom, and where its data may lie."""

    bin: Path
    home: Path
    owner: tuple[int, int]
    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    def options(self) -> dict[str, object]:
        """Arguments for `subprocess`. The working folder is `/`, because ours may be closed to that user."""
        if self.user is None:
            return {"cwd": "/"}
        return {"cwd": "/", "user": self.user, "group": self.group, "extra_groups": []}

    def command(self, program: str, *arguments: str) -> list[str]:
        return [*self.prefix, str(self.bin / program), *arguments]


def choose_launch(binaries: Path, folder: Path) -> Launch:
    """The first way that works: as we are; as `nobody`; in a user namespace; as `nobody` from a copy.

    `folder` exists and is ours. Each way is tried by running `postgres --version` with the folder in reach,
    because modes alone do not tell (mounts, access lists, namespaces).
    """
    if os.geteuid() != 0:
        return Launch(binaries, folder, (os.geteuid(), os.getegid()))
    uid, gid = _nobody()
    for launch in (as_nobody(binaries, folder, uid, gid), in_namespace(binaries, folder, uid, gid)):
        if reaches(launch):
            return launch
    launch = from_copy(binaries, folder, uid, gid)
    if reaches(launch):
        return launch
    raise DevError(
        "PostgreSQL does not run as root and no other user could run it here: run make as a normal user"
    )


def _nobody() -> tuple[int, int]:
    # initdb looks its user up, so the id needs a passwd entry.
    for name in ("nobody", "postgres"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise DevError(
        "PostgreSQL does not run as root and there is no user `nobody`: add one or run make as a normal user"
    )


def as_nobody(binaries: Path, home: Path, uid: int, gid: int) -> Launch:
    return Launch(binaries, home, (uid, gid), user=uid, group=gid)


def in_namespace(binaries: Path, home: Path, uid: int, gid: int) -> Launch:
    """Root outside, `nobody` inside: passes through parent folders with mode 0700 and needs no chmod."""
    prefix = ("unshare", "--user", f"--map-user={uid}", f"--map-group={gid}")
    return Launch(binaries, home, (0, 0), prefix=prefix)


def from_copy(binaries: Path, folder: Path, uid: int, gid: int) -> Launch:
    """Binaries (if out of reach too) and data in an open place; its name follows from the folder's."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    home = _open_place() / f"countersign-postgres-{digest}"
    home.mkdir(mode=0o711, exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.geteuid():
        raise DevError(f"{home} belongs to somebody else: remove it or run make as a normal user")
    home.chmod(0o711)
    if reaches(as_nobody(binaries, home, uid, gid)):
        return as_nobody(binaries, home, uid, gid)
    return as_nobody(_copy_binaries(binaries, home), home, uid, gid)


def _open_place() -> Path:
    lasting = Path("/var/tmp")  # survives a restart of the machine, unlike /tmp
    return lasting if lasting.is_dir() else Path(tempfile.gettempdir())


def _copy_binaries(binaries: Path, home: Path) -> Path:
    """Copy the package with the libraries beside it (its binaries find them by relative path)."""
    package = binaries.parent.parent
    target = home / "package"
    for source in (package, package.with_name(package.name + ".libs")):
        if source.is_dir():
            shutil.copytree(source, target / source.name, dirs_exist_ok=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
    return target / package.name / binaries.parent.name / binaries.name


def reaches(launch: Launch) -> bool:
    """Does the program run that way, and can it pass through to the folder of its data?"""
    script = 'command="$1"; shift; "$command" --version >/dev/null && test -x "$1"'
    program: Sequence[str] = ("sh", "-c", script, "sh", str(launch.bin / "postgres"), str(launch.home))
    try:
        answer = subprocess.run(
            [*launch.prefix, *program], capture_output=True, timeout=20, check=False, **launch.options()
        )  # type: ignore[call-overload]
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(answer.returncode == 0)


def give(folder: Path, owner: tuple[int, int]) -> None:
    """Make `owner` own a data folder and all in it; nothing is done when the top already is theirs."""
    state = folder.stat()
    if (state.st_uid, state.st_gid) == owner or os.geteuid() != 0:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent) / name, *owner, follow_symlinks=False)
    os.chown(folder, *owner)  # last: a half-done walk is then repeated
