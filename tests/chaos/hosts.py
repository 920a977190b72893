"""Hosts of their own on one machine: network namespaces on a bridge, whose packets can be thrown away in one direction.

To be used in a process that has a network to itself (`unshare --net`): nothing outside is touched, and all is gone when the
process ends. A namespace belongs to a thread: what is started `inside` one, socket or process, stays there.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_NETWORK = "10.77.0"
_NEW_NETWORK = 0x4000_0000  # CLONE_NEWNET
_TOOLS = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}  # where a normal user does not look
_libc = ctypes.CDLL(None, use_errno=True)


class Hosts:
    """`with Hosts(["web", "postgres"]) as hosts: …`. The bridge is at home, where tests run, and so reaches them all."""

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names, 2)}
        self._spaces: dict[str, int] = {}
        self._home = _current()

    def __enter__(self) -> Hosts:
        _run("ip link set lo up", "ip link add bridge type bridge", f"ip addr add {_NETWORK}.1/24 dev bridge")
        _run("ip link set bridge up")
        for name in self._numbers:
            self._add(name)
        return self

    def __exit__(self, *_: object) -> None:
        for space in (*self._spaces.values(), self._home):
            os.close(space)

    def address(self, name: str) -> str:
        """Where a host is."""
        return f"{_NETWORK}.{self._numbers[name]}"

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """This thread, and what it starts, is on that host."""
        _enter(self._spaces[name])
        try:
            yield
        finally:
            _enter(self._home)

    def lose(self, sender: str, receiver: str) -> None:
        """What one host sends to another does not arrive. Nobody is told."""
        with self.inside(receiver):
            _run(f"iptables -w 5 -A INPUT -s {self.address(sender)} -j DROP")

    def part(self, one: str, other: str) -> None:
        """Neither hears the other."""
        self.lose(one, other)
        self.lose(other, one)

    def heal(self) -> None:
        """Everybody hears everybody."""
        for name in self._spaces:
            with self.inside(name):
                _run("iptables -w 5 -F INPUT")

    def _add(self, name: str) -> None:
        if _libc.unshare(_NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "unshare")
        space = self._spaces[name] = _current()
        _enter(self._home)
        cable, end = f"cable{self._numbers[name]}", f"/proc/{os.getpid()}/fd/{space}"
        _run(f"ip link add {cable} type veth peer name eth0 netns {end}")
        _run(f"ip link set {cable} master bridge up")
        with self.inside(name):
            _run("ip link set lo up", f"ip addr add {self.address(name)}/24 dev eth0", "ip link set eth0 up")


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _enter(space: int) -> None:
    if _libc.setns(space, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False, env=_TOOLS)
        assert done.returncode == 0, f"{command}: {done.stderr.strip()}"
