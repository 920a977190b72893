"""Hosts that are parted from each other, in one direction or both, and healed, break no promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.chaos.partitions import SCRIPT
from tests.support.cluster import ROOT

# Root makes namespaces as it is; anybody else in a namespace of users, as themselves.
UNSHARE = (
    ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-current-user", "--keep-caps", "--net"]
)


def test_hosts_that_are_parted_and_healed_break_no_promise(tmp_path: Path) -> None:
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o711)  # as root PostgreSQL runs as another user, which must be able to pass through
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "tests.chaos.partitions", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    sys.stdout.write(done.stdout + done.stderr[-5000:])
    assert done.returncode == 0, done.stdout[-3000:]
    assert all(what in done.stdout for what, *_ in SCRIPT)
