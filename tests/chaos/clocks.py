"""Wrong clocks for single processes: a small library that is loaded before the C library (clock.c)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")


@cache
def library(folder: Path) -> Path:
    """The compiled library, in `folder`. Needs a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "wrong clocks need a C compiler: install gcc and libc6-dev"
    built = folder / "clock.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", built, _SOURCE], check=True, timeout=60)
    return built


def off_by(hours: float, folder: Path) -> Mapping[str, str]:
    """The environment of a process whose clock is off by that much; nothing for 0."""
    if not hours:
        return {}
    return {"LD_PRELOAD": str(library(folder)), "CHAOS_CLOCK_OFFSET": str(round(hours * 3600))}
