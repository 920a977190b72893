"""Ports, locks and signals of the dev tools."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dev.processes import (
    PORTS_TRIED,
    FolderLock,
    explain,
    free_port,
    is_alive,
    stop_process,
    tail,
    wait_until,
)


def test_a_liked_port_is_taken_when_nothing_listens_there() -> None:
    liked = free_port()
    assert free_port(liked) == liked


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_another_port_is_taken_when_somebody_listens_on_the_liked_one(host: str) -> None:
    with socket.socket() as listener:
        listener.bind((host, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        assert free_port(taken) not in (0, taken)


def test_the_next_free_port_is_taken_and_none_that_is_promised_already() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        found = free_port(taken, avoid=(taken + 1,))
        assert taken + 1 < found < taken + PORTS_TRIED


def test_no_room_is_explained_once_with_what_is_needed() -> None:
    assert explain("write failed: No space left on device") == (
        "the disk is full: free about 550 MB and try again (write failed: No space left on device)"
    )
    assert explain("something else") == "something else"


def test_a_folder_is_locked_for_one_holder_who_is_named(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    assert first.acquire()
    assert first.acquire()  # its own
    assert not second.acquire()
    assert second.holder() == str(os.getpid())
    first.release()
    assert second.acquire()
    second.release()


def test_a_lock_does_not_outlive_its_killed_holder(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from dev.processes import FolderLock; "
        "lock = FolderLock(Path(sys.argv[1])); print(lock.acquire(), flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == "True\n"
        assert not FolderLock(tmp_path).acquire()
        holder.kill()
    lock = FolderLock(tmp_path)
    assert lock.acquire()
    lock.release()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_child_ends_when_its_parent_is_killed() -> None:
    code = (
        "import subprocess, sys, time; from dev.processes import die_with_parent; "
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True, preexec_fn=die_with_parent(15)); "
        "print(child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    assert wait_until(lambda: not is_alive(child), seconds=5)


def test_a_process_that_ignores_the_signal_is_killed_with_its_children() -> None:
    script = 'trap "" TERM; sleep 60 & echo $!; while :; do wait; done'
    process = subprocess.Popen(
        ["/bin/sh", "-c", script],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        grandchild = int(process.stdout.readline())
        assert not stop_process(process, signal.SIGTERM, seconds=0.2)
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: not is_alive(grandchild), seconds=5)


def test_a_log_s_end_becomes_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthree\n")
    assert tail(log, 2) == "two | three"
    assert tail(tmp_path / "missing") == ""
