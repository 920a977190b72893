"""Nothing personal, secret or of somebody's machine is in the repository: every file of it is read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.addresses import is_reserved

ROOT = Path(__file__).parents[2]
UNREAD = {
    ".git",
    ".venv",
    ".run",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}

ADDRESS = re.compile(r"[A-Za-z0-9._%+'/=-]+@((?:[A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z][A-Za-z0-9-]*)\b")
# Of no domain that there is, and the point of the test they are in.
MEANT = {"ada@example.comn": "test_tokens: the address runs on into the nonce"}
SECRETS = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a Resend key": r"\bre_[A-Za-z0-9]{8,}_[A-Za-z0-9]{16,}",
    "a SendGrid key": r"\bSG\.[\w-]{20,}\.[\w-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{30,})",
    "a Stripe or Slack key": r"\b(?:[sr]k_live_[A-Za-z0-9]{20,}|xox[abprs]-[A-Za-z0-9-]{20,})",
    "a Heroku or npm token": r"\b(?:HRKU-[\w-]{30,}|npm_[A-Za-z0-9]{36})",
}
MACHINES = {
    "a home": r"(?<![\w.])/(?:home|Users)/[a-z]\w+/|(?<![\w.])/root/\w|[A-Z]:\\\\?Users",
    "a workspace": r"(?<![\w.])/(?:work|workspace|mnt|builds?|srv)/\w",
}
HOSTS = {
    "a package source": r"(?:pypi|files\.pythonhosted|registry\.npmjs)\.(?:org|python\.org)|[Aa]rtifactory|index-url +http",
}


@cache
def texts() -> dict[str, str]:
    """Every file that is, or would be, committed; binary ones as far as they are text."""
    return {str(path.relative_to(ROOT)): path.read_bytes().decode(errors="replace") for path in files()}


def files() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        found = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    else:  # an archive without its history
        found = (path for path in ROOT.rglob("*") if not UNREAD & set(path.relative_to(ROOT).parts))
    yield from (path for path in found if path.is_file())


def test_the_files_are_there_to_be_read() -> None:
    assert len(texts()) > 150
    assert {"README.md", "Procfile", "db/logs.py", "requirements.txt"} <= set(texts())


def addresses(text: str) -> list[str]:
    """The addresses in a text at domains where mail could arrive."""
    found = [match for match in ADDRESS.finditer(text) if not is_reserved(match[1].lower())]
    return [match[0] for match in found if match[0] not in MEANT]


def test_every_address_is_at_a_domain_where_no_mail_arrives() -> None:
    found = {name: addresses(text) for name, text in texts().items()}
    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.parametrize("patterns", [SECRETS, MACHINES, HOSTS], ids=["secrets", "machines", "hosts"])
def test_no_file_has_a_secret_or_says_where_it_was_made(patterns: dict[str, str]) -> None:
    here = str(Path(__file__).relative_to(ROOT))  # it has the patterns
    found = [
        f"{what} in {name}: {match[0][:20]}"
        for name, text in texts().items()
        for what, pattern in patterns.items()
        if name != here and (match := re.search(pattern, text))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("ada@" + "gmail.com", True),
        ("<o'neil+x@mail." + "company.io>", True),
        ("smtp://user:password@" + "smtp.company.io", True),
        ("ada@example.com", False),
        ("ada@sub.example", False),
        ("user@127.0.0.1", False),
        ("@decorator.method", False),
        ("celery@%h", False),
    ],
)
def test_an_address_is_recognised(text: str, is_found: bool) -> None:
    assert bool(addresses(text)) is is_found


@pytest.mark.parametrize("what", [*SECRETS, *MACHINES, *HOSTS])
def test_what_must_not_be_there_is_recognised(what: str) -> None:
    examples = {
        "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
        "a Resend key": "re_" + "a1B2c3D4_" + "x" * 20,
        "a SendGrid key": "SG." + "x" * 22 + "." + "y" * 43,
        "an AWS key": "AKIA" + "A1B2C3D4E5F6G7H8",
        "a GitHub token": "ghp_" + "a" * 36,
        "a Stripe or Slack key": "sk_live_" + "a" * 24,
        "a Heroku or npm token": "npm_" + "a" * 36,
        "a home": "cd /home/" + "ada/project",
        "a workspace": "cd /work" + "/main",
        "a package source": "https://pypi" + ".org/simple",
    }
    assert re.search({**SECRETS, **MACHINES, **HOSTS}[what], examples[what])
