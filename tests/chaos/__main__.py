"""`python -m tests.chaos --minutes 2 --seed 7`: exit 0 when every promise was kept, 1 when not."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path

from tests.chaos import report, sabotage
from tests.chaos.run import run

_FOLDER = Path(".run")


def main() -> int:
    """Run, print, write `.run/chaos-SEED.json`."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="length of load and faults")
    parser.add_argument(
        "--seed", type=int, default=None, help="decides what goes wrong when; by default a new one"
    )
    parser.add_argument(
        "--sabotage", choices=sabotage.SABOTAGE, default="", help="a rule that workers are left without"
    )
    asked = parser.parse_args()
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    folder = (_FOLDER / f"chaos-{seed}").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o711)
    _FOLDER.chmod(0o711)  # as root PostgreSQL runs as another user, which must be able to pass through
    say(f"seed {seed}: repeat it with MINUTES={asked.minutes:g} SEED={seed}")
    outcome = run(seed, asked.minutes, folder, lambda text: say(f"  {text}"), sabotage=asked.sabotage)
    for line in (*report.lines(outcome), *outcome.stories):
        say(line)
    shutil.rmtree(folder / "postgres")  # logs and the client's book stay
    report.write(outcome, _FOLDER / f"chaos-{seed}.json")
    return 1 if outcome.breaches else 0


def say(text: str) -> None:
    """On the screen at once, also where that is a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
