"""Processes of `make run`: their command lines, their output, how their end is told."""

from __future__ import annotations

import io
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from dev.children import Child, Printer, ended, how_it_ended, python_command, read_procfile
from dev.processes import DevError, wait_until
from dev.stack import OUR_QUESTIONS, OUR_REQUEST, ROOT, for_a_desk


def child(script: str, folder: Path) -> Child:
    environment = {"PATH": os.environ["PATH"], "PORT": "5001"}
    return Child("web", script, environment, folder=folder)


def test_the_procfile_names_what_the_platform_runs() -> None:
    assert list(read_procfile(ROOT / "Procfile")) == ["release", "web", "worker", "beat", "flower"]


def test_a_procfile_without_processes_is_told(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("# nothing\n")
    with pytest.raises(DevError, match="names no process"):
        read_procfile(tmp_path / "Procfile")


def test_on_a_desk_only_this_machine_reaches_the_web() -> None:
    assert for_a_desk("gunicorn app --bind 0.0.0.0:$PORT").endswith(" app --bind 127.0.0.1:$PORT")


def test_on_a_desk_nobody_writes_banners_or_a_log_format_of_its_own() -> None:
    assert for_a_desk("gunicorn app") == "gunicorn --log-level warning app"
    assert for_a_desk("celery -A x worker") == "celery --quiet -A x worker"
    assert for_a_desk("celery -A x flower --port=1") == "celery --quiet -A x flower --logging=error --port=1"


def test_our_own_questions_are_not_printed_unless_they_fail(tmp_path: Path) -> None:
    out = io.StringIO()
    lines = [
        f"request path=/readyz request_id={OUR_REQUEST} status=200",
        f"request path=/readyz request_id={OUR_REQUEST} status=503",
        f'{{"path": "/readyz", "request_id": "{OUR_REQUEST}", "status": 404}}',
        "request path=/readyz request_id=req_1 status=200",
    ]
    script = "printf '%s\\n' " + shlex.join(lines)
    made = Child("web", script, os.environ, folder=tmp_path, unprinted=OUR_QUESTIONS).start(Printer(out))
    wait_until(lambda: made.returncode() is not None, seconds=5)
    made.stop(seconds=1)
    assert [line.partition("| ")[2] for line in out.getvalue().splitlines()] == [lines[1], lines[3]]
    assert list(made.last_lines) == lines


def test_lines_carry_the_name_and_variables_are_expanded(tmp_path: Path) -> None:
    out = io.StringIO()
    made = child("sh -c 'echo port $PORT; echo; printf unfinished'", tmp_path).start(Printer(out))
    wait_until(lambda: made.returncode() is not None, seconds=5)
    made.stop(seconds=1)
    assert out.getvalue() == "web      | port 5001\nweb      | unfinished\n"
    assert list(made.last_lines) == ["port 5001", "unfinished"]


def test_bytes_that_are_no_text_are_printed_all_the_same(tmp_path: Path) -> None:
    out = io.StringIO()
    made = child("printf 'a\\377b\\n'", tmp_path).start(Printer(out))
    wait_until(lambda: made.returncode() is not None, seconds=5)
    made.stop(seconds=1)
    assert out.getvalue() == "web      | a\ufffdb\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sh -c 'exit 3'", "web ended with exit status 3"),
        ("sh -c 'kill -KILL $$'", "web was killed by SIGKILL"),
    ],
)
def test_an_end_is_told_in_words(script: str, words: str, tmp_path: Path) -> None:
    made = child(script, tmp_path).start(Printer(io.StringIO()))
    wait_until(lambda: made.returncode() is not None, seconds=5)
    assert ended([made]) is made
    assert how_it_ended(made) == words
    made.stop(seconds=1)


def test_a_closed_output_silences_the_printer_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    broken = os.fdopen(writer, "w")
    printer = Printer(broken)
    printer.say("nobody reads this")
    printer.line("web", "nor this")
    with suppress(BrokenPipeError):
        broken.close()
    printer.say("nor what comes after the close")


def test_stopping_what_never_started_or_ended_already_is_right(tmp_path: Path) -> None:
    never = child("true", tmp_path)
    never.ask_to_stop()
    assert never.stop(seconds=1)
    gone = child("true", tmp_path).start(Printer(io.StringIO()))
    wait_until(lambda: gone.returncode() is not None, seconds=5)
    gone.ask_to_stop()
    assert gone.stop(seconds=1)


def test_our_own_modules_run_under_this_python() -> None:
    assert python_command("dev.inbox", "--http-port", 1) == f"{sys.executable} -m dev.inbox --http-port 1"
