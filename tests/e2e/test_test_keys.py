"""The example of docs/test-keys.md, as it stands there, against the real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import System
from tests.support.cluster import ROOT


def test_a_hosts_own_tests_rehearse_with_a_test_key(system: System, tmp_path: Path) -> None:
    text = (ROOT / "docs/test-keys.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "test_sign_up.py").write_text(example, encoding="utf-8")
    key = system.command("clients", "create", "ci", "--test")["api_key"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", "."],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "API_URL": system.url, "TEST_API_KEY": str(key)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^5 passed", done.stdout, re.M), done.stdout
    assert system.inbox.messages() == [], "nothing left the machine"
    output = system.cluster.output()
    assert str(key) not in output
