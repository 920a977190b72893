"""What each kind of fault does to the world, and how it ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import redis

from dev.processes import DevError
from tests.chaos.schedule import MOODS, Fault
from tests.chaos.world import World

_ON_THE_WAY_SECONDS = 0.8  # until some mail is; the send deadline is longer
Deed = Callable[[World, Fault], None]


def begin(world: World, fault: Fault) -> None:
    """Do it."""
    DEEDS[fault.kind][0](world, fault)


def end(world: World, fault: Fault) -> None:
    """Undo it."""
    DEEDS[fault.kind][1](world, fault)


def _nothing(world: World, fault: Fault) -> None:
    pass


# Processes


def _signal(signum: signal.Signals) -> Deed:
    return lambda world, fault: world.supervisor.parts[fault.target].signal(signum)


def _terminate(world: World, fault: Fault) -> None:
    world.supervisor.parts[fault.target].terminate()


def _set_clock(world: World, fault: Fault) -> None:
    world.supervisor.parts[fault.target].clock_hours = fault.amount
    world.supervisor.parts[fault.target].terminate()  # it starts again with the new clock


def _mend_clock(world: World, fault: Fault) -> None:
    world.supervisor.parts[fault.target].clock_hours = 0.0
    world.supervisor.parts[fault.target].terminate()


def _mid_send(deed: Deed) -> Deed:
    """When mails are on their way: the servers have them and have not answered yet."""

    def deed_then(world: World, fault: Fault) -> None:
        silent = [server for server in world.mail.values() if server.mood == "calm"]
        for server in silent:
            server.mood = "accept_then_hang"
        time.sleep(_ON_THE_WAY_SECONDS)
        deed(world, fault)
        for server in silent:
            server.mood = "calm"

    return deed_then


# Redis


def _redis_gone(world: World, fault: Fault) -> None:
    world.redis.kill()


def _redis_back(world: World, fault: Fault) -> None:
    world.redis.start()


def _redis_signal(signum: signal.Signals) -> Deed:
    return lambda world, fault: os.kill(world.redis.pid, signum)


def _redis_command(*words: str) -> Deed:
    def deed(world: World, fault: Fault) -> None:
        with suppress(DevError, redis.RedisError), redis.Redis.from_url(world.redis.url()) as client:
            client.execute_command(*words)

    return deed


# PostgreSQL


def _postgres_down(world: World, fault: Fault) -> None:
    if fault.kind == "postgres_immediate":
        world.postgres.kill()
    else:
        world.postgres.stop()


def _postgres_up(world: World, fault: Fault) -> None:
    world.postgres.start()


def _sql(*statements: str) -> Deed:
    def deed(world: World, fault: Fault) -> None:
        with suppress(psycopg.errors.AdminShutdown):
            world.sql(*statements)

    return deed


def _postgres_signal(signum: signal.Signals) -> Deed:
    """To the server and all its backends: they are its children, each in a group of its own."""

    def deed(world: World, fault: Fault) -> None:
        server = world.postgres.pid
        for pid in (server, *_descendants(server)):
            with suppress(ProcessLookupError):
                os.kill(pid, signum)

    return deed


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            found += [child, *_descendants(child)]
    return found


# Links and mail servers


def _hold(*, out: bool, back: bool) -> Deed:
    return lambda world, fault: world.links[fault.target].hold(out=out, back=back)


def _delay(world: World, fault: Fault) -> None:
    world.links[fault.target].delay(fault.amount)


def _cut(world: World, fault: Fault) -> None:
    world.links[fault.target].cut()


def _heal(world: World, fault: Fault) -> None:
    world.links[fault.target].heal()


def _mood(world: World, fault: Fault) -> None:
    world.mail[fault.target].mood = fault.kind.removeprefix("mail_")


def _calm(world: World, fault: Fault) -> None:
    world.mail[fault.target].mood = "calm"


def _away(world: World, fault: Fault) -> None:
    for link in _links_to(world, fault):
        world.links[link].refuse()


def _back(world: World, fault: Fault) -> None:
    for link in _links_to(world, fault):
        world.links[link].heal()


def _links_to(world: World, fault: Fault) -> list[str]:
    return [name for name in world.links if name.endswith(f"-{fault.target}")]


_RELOAD = "SELECT pg_reload_conf()"
_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
DEEDS: dict[str, tuple[Deed, Deed]] = {
    "kill": (_signal(signal.SIGKILL), _nothing),
    "terminate": (_terminate, _nothing),
    "pause": (_signal(signal.SIGSTOP), _signal(signal.SIGCONT)),
    "kill_mid_send": (_mid_send(_signal(signal.SIGKILL)), _nothing),
    "terminate_mid_send": (_mid_send(_terminate), _nothing),
    "pause_mid_send": (_mid_send(_signal(signal.SIGSTOP)), _signal(signal.SIGCONT)),
    "wrong_clock": (_set_clock, _mend_clock),
    "redis_restart": (_redis_gone, _redis_back),
    "redis_freeze": (_redis_signal(signal.SIGSTOP), _redis_signal(signal.SIGCONT)),
    "redis_flush": (_redis_command("FLUSHALL"), _nothing),
    "redis_clients_killed": (_redis_command("CLIENT", "KILL", "TYPE", "normal"), _nothing),
    "redis_gone": (_redis_gone, _nothing),
    "postgres_fast": (_postgres_down, _postgres_up),
    "postgres_immediate": (_postgres_down, _postgres_up),
    "postgres_backends": (_sql(_TERMINATE), _nothing),
    "postgres_read_only": (
        _sql("ALTER SYSTEM SET default_transaction_read_only = on", _RELOAD),
        _sql("ALTER SYSTEM RESET default_transaction_read_only", _RELOAD),
    ),
    "postgres_slow_commits": (
        _sql("ALTER SYSTEM SET commit_delay = 100000", "ALTER SYSTEM SET commit_siblings = 0", _RELOAD),
        _sql("ALTER SYSTEM RESET commit_delay", "ALTER SYSTEM RESET commit_siblings", _RELOAD),
    ),
    "postgres_freeze": (_postgres_signal(signal.SIGSTOP), _postgres_signal(signal.SIGCONT)),
    "black_hole": (_hold(out=True, back=True), _heal),
    "half_open_out": (_hold(out=True, back=False), _heal),
    "half_open_in": (_hold(out=False, back=True), _heal),
    "delay": (_delay, _heal),
    "cut": (_cut, _nothing),
    **{f"mail_{mood}": (_mood, _calm) for mood in MOODS if mood != "away"},
    "mail_away": (_away, _back),
}
