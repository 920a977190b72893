"""`make run` and `make demo` as a whole: real processes, started, used, stopped, killed."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from db import clients
from db.session import Database
from dev.children import Printer
from dev.environment import read_values
from dev.inbox import Inbox
from dev.postgres import Postgres
from dev.processes import DevError, command_of, is_alive, is_listening, wait_until
from dev.redis import Redis
from dev.run import NAMES, PROCESS_NAMES
from dev.stack import ROOT, Stack, status_of

MAIN = "import sys; from pathlib import Path; from dev.run import main; sys.exit(main(Path(sys.argv[1])))"
START_SECONDS = 180.0
STOP_SECONDS = 60.0


def descendants(pid: int) -> set[int]:
    """Every process below `pid`, by `/proc`."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found, fresh = set[int](), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


class Run:
    """One `make run` over a folder of its own, with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder.with_name("output")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> Run:
        given = {
            name: value
            for name, value in os.environ.items()
            if not name.endswith("_URL") and name != "MAKELEVEL"
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, str(self.folder)],
                cwd=ROOT,
                env={**given, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def ready(self) -> Run:
        assert self.process is not None
        process = self.process
        wait_until(lambda: process.poll() is not None or "READY" in self.lines(), seconds=START_SECONDS)
        assert "READY" in self.lines(), self.output.read_text()
        return self

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()

    def env(self) -> dict[str, str]:
        return read_values(self.folder / "env")

    def send(self, signum: int) -> None:
        assert self.process is not None
        self.process.send_signal(signum)

    def family(self) -> dict[int, str]:
        assert self.process is not None
        return {pid: command_of(pid) for pid in descendants(self.process.pid)}

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=STOP_SECONDS)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "run")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.send(signal.SIGTERM)
        made.wait()


def all_gone(family: dict[int, str], *, seconds: float = 10) -> bool:
    return wait_until(
        lambda: not any(is_alive(pid) and command_of(pid) == command for pid, command in family.items()),
        seconds=seconds,
    )


def pid_of(family: dict[int, str], words: str) -> int:
    return next(pid for pid, command in family.items() if words in command)


def test_it_starts_serves_refuses_a_second_and_stops_without_leaving_anything(
    run: Run, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        taken_port = taken.getsockname()[1]
        run.start(PORT=str(taken_port)).ready()
    env = run.env()
    assert tuple(env) == (*NAMES, *PROCESS_NAMES)
    assert (run.folder / "env").stat().st_mode & 0o777 == 0o600
    assert run.folder.stat().st_mode & 0o066 == 0
    assert any(f"{taken_port} is taken, using " in line for line in run.lines())
    assert not env["API_URL"].endswith(f":{taken_port}")
    assert status_of(env["API_URL"] + "/readyz") == 200
    assert status_of(env["FLOWER_URL"] + "/healthcheck") == 200
    assert any(env["API_KEY"] in line and line.startswith("curl ") for line in run.lines())
    assert env["TEST_API_KEY"].startswith("cs_test_")
    assert any(env["TEST_API_KEY"] in line for line in run.lines())
    passwords = [urlsplit(url).password or "" for url in env.values() if urlsplit(url).password]
    assert len(passwords) == 2
    output = run.output.read_text()
    assert not [password for password in passwords if password in output]
    before_ready = output.partition("READY")[0]
    assert "Inspect method" not in before_ready
    assert "[access]" not in before_ready  # only we asked so far

    second = subprocess.run(
        [sys.executable, "-c", MAIN, run.folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert len(second.stdout.splitlines()) == 1
    assert "make run is already going" in second.stdout
    assert run.env() == env

    family = run.family()
    run.send(signal.SIGTERM)
    run.send(signal.SIGINT)
    assert run.wait() == 0
    assert all_gone(family, seconds=1)
    assert not [url for url in env.values() if "://" in url and is_listening(urlsplit(url).port or 0)]
    assert run.lines()[-1].endswith("stopped; the data stays in .run")
    assert not (run.folder / "env").exists()


def test_the_key_and_the_data_survive_and_a_dead_worker_ends_the_whole(run: Run) -> None:
    run.start().ready()
    env = run.env()
    request = urllib.request.Request(
        f"{env['API_URL']}/v1/verifications",
        data=json.dumps({"account_id": "account-1", "email": "ada@example.com"}).encode(),
        headers={"Authorization": f"Bearer {env['API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        verification = json.load(answer)["verification_id"]
    run.send(signal.SIGINT)
    assert run.wait() == 0

    run.start().ready()
    again = run.env()
    for name in ("API_KEY", "TEST_API_KEY", "API_URL", "INBOX_URL", "FLOWER_URL"):
        assert again[name] == env[name]
    headers = {"Authorization": f"Bearer {env['API_KEY']}"}
    assert status_of(f"{again['API_URL']}/v1/verifications/{verification}", headers) == 200
    family = run.family()
    os.kill(pid_of(family, "celery_app worker"), signal.SIGKILL)
    assert run.wait() == 1
    assert any("worker was killed by SIGKILL; its last lines" in line for line in run.lines())
    assert all_gone(family, seconds=1)


def test_parts_that_are_given_are_used_and_not_started(run: Run, tmp_path: Path) -> None:
    with Postgres(tmp_path / "postgres") as postgres, Redis(tmp_path / "redis") as redis, Inbox() as inbox:
        given = {"DATABASE_URL": postgres.url(), "REDIS_URL": redis.url(), "MAIL_URL": inbox.smtp_url}
        run.start(**given).ready()
        env = run.env()
        assert {**env, **{name: given[name] for name in ("DATABASE_URL", "REDIS_URL")}} == env
        assert env["INBOX_URL"] == ""
        started = " ".join(run.family().values())
        assert not [name for name in ("bin/postgres", "valkey-server", "dev.inbox") if name in started]
        run.send(signal.SIGTERM)
        assert run.wait() == 0
        assert postgres.is_running()
        assert redis.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_nothing_survives_a_supervisor_that_was_killed(run: Run) -> None:
    run.start().ready()
    family = run.family()
    assert len(family) > 8
    run.send(signal.SIGKILL)
    run.wait()
    assert all_gone(family, seconds=40)


def test_a_stop_during_the_start_is_heard(run: Run) -> None:
    run.start()
    assert wait_until(lambda: any("Redis" in line for line in run.lines()), seconds=START_SECONDS)
    family = run.family()
    run.send(signal.SIGTERM)
    assert run.wait() == 0
    assert "READY" not in run.lines()
    assert all_gone(family, seconds=1)


def test_a_broken_part_is_told_in_one_line_and_nothing_stays(run: Run) -> None:
    run.start(COUNTERSIGN_POSTGRES_BIN="/nonexistent")
    assert run.wait() == 1
    told = [line for line in run.lines() if "COUNTERSIGN_POSTGRES_BIN=/nonexistent has no working" in line]
    assert len(told) == 1
    assert "Traceback" not in run.output.read_text()


def test_a_given_part_that_does_not_work_is_one_sentence_before_anything_starts(run: Run) -> None:
    run.start(DATABASE_URL="postgresql://u:geheim@127.0.0.1:9/none")
    assert run.wait() == 1
    (line,) = run.lines()
    assert line.startswith("run      | DATABASE_URL does not work (")
    assert "geheim" not in line
    assert not (run.folder / "postgres").exists()


def test_a_second_key_is_made_for_a_client_that_exists(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    given = {"DATABASE_URL": database_url, "PATH": os.environ["PATH"]}
    out = Printer(io.StringIO())
    stack = Stack(tmp_path, given, printer=out, stop_asked=threading.Event())
    keys = [stack.create_key("make-run") for _ in range(2)]
    assert len(set(keys)) == 2
    with database.transaction() as tx:
        assert [clients.authenticate(tx, key).name for key in keys] == ["make-run"] * 2
    with pytest.raises(DevError, match=r"cannot create an API key; `clients create .*: .*letters, digits"):
        stack.create_key("no/name")


def test_a_failed_release_is_told_once_in_its_own_words(tmp_path: Path) -> None:
    given = {"DATABASE_URL": "postgresql://u@127.0.0.1:9/none", "PATH": os.environ["PATH"]}
    out = io.StringIO()
    stack = Stack(tmp_path, given, printer=Printer(out), stop_asked=threading.Event())
    with pytest.raises(
        DevError, match=r"release ended with exit status 3; its last lines:\n.*does not answer"
    ):
        stack._release()
    assert out.getvalue() == ""


def demo(results: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from pathlib import Path; from dev.demo import main; sys.exit(main(Path(sys.argv[1])))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(results)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )


def test_the_demo_ends_well_and_leaves_its_receipt(tmp_path: Path) -> None:
    # What is given to make run is none of the demo's business.
    done = demo(tmp_path, DATABASE_URL="postgresql://nobody@127.0.0.1:9/none", TMPDIR=str(tmp_path))
    receipt = json.loads((tmp_path / "demo-receipt.json").read_text())
    assert done.stdout.splitlines()[-1] == f"DEMO OK {receipt['verification']['verification_id']}", (
        done.stdout
    )
    assert done.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["demo-receipt.json"]
    assert (tmp_path / "demo-receipt.json").stat().st_mode & 0o777 == 0o600


def test_a_demo_whose_receipt_cannot_be_kept_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo(tmp_path / "file" / "run")
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("DEMO FAILED start: cannot write in ")
    assert done.stderr == ""


def test_a_failed_demo_says_which_step_and_why(tmp_path: Path) -> None:
    done = demo(tmp_path, COUNTERSIGN_POSTGRES_BIN="/nonexistent")
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("DEMO FAILED start: COUNTERSIGN_POSTGRES_BIN=/nonexistent has no working")
    assert "Traceback" not in done.stdout + done.stderr
