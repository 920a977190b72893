"""Which port each part takes, so that a link of yesterday still leads somewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dev.environment import read_values, write_private
from dev.processes import free_port


class Ports:
    """The port of the run before, else the liked one, else the next that is free; kept in `path`.

    A part without a liked port takes any, which is not kept. `say` is told when a wanted port is taken.
    """

    def __init__(self, path: Path, liked: Mapping[str, int], say: Callable[[str], None]) -> None:
        self._path, self._liked, self._say = path, liked, say
        kept = read_values(path)
        self._kept = {name: int(kept[name]) for name in liked if kept.get(name, "").isdecimal()}
        self._chosen: dict[str, int] = {}

    def choose(self, name: str, asked: int = 0) -> int:
        """A port for `name`; one that is asked for comes first, and is not kept for the next run."""
        liked = self._liked.get(name, 0)
        wanted = asked or self._kept.get(name) or liked
        port = free_port(wanted, avoid=self._chosen.values())
        if wanted and port != wanted:
            if wanted != liked and not asked:
                port = free_port(liked, avoid=self._chosen.values())
            self._say(f"{wanted} is taken, using {port} for {name}")
        self._chosen[name] = port
        if liked and not asked:
            self._kept[name] = port
        return port

    def keep(self) -> None:
        """Write down what was chosen."""
        if self._kept:
            write_private(self._path, {name: str(port) for name, port in self._kept.items()})
