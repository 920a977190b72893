"""TCP links that can be hurt: every two parts of the system talk through one.

A link passes on, holds one direction or both back (what is held arrives when it heals, as TCP would have it), delays, is
cut by a reset, or refuses. Towards a mail server nothing is held: what left a worker during a black hole never arrives, so
that the time at which a mail arrives says when it left.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_LOOPBACK = "127.0.0.1"
_CALL_SECONDS = 10.0


class Network:
    """All links, on one event loop in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []

    def link(self, port: int, *, drops: bool = False) -> Link:
        """A new link to a port on loopback. `drops`: what it would hold is lost, and its connections with it."""
        made = Link(self, port, drops=drops)
        self.run(made.open())
        self._links.append(made)
        return made

    def run(self, what: Coroutine[Any, Any, None]) -> None:
        """Run something on the loop and wait for it."""
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_CALL_SECONDS)

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            self.run(link.close())
        self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_CALL_SECONDS / 2)


class Link:
    """One listener and the connections through it. `out` is from whoever connects, `back` is to them."""

    def __init__(self, network: Network, target: int, *, drops: bool) -> None:
        self._network, self._target, self._drops = network, target, drops
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self.port = 0
        self._out, self._back = asyncio.Event(), asyncio.Event()  # whether each direction is open
        self._out.set()
        self._back.set()
        self.delay_seconds = 0.0

    async def open(self) -> None:
        """Listen; on the same port every time."""
        self._server = await asyncio.start_server(self._serve, _LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuse connections from now on, and cut those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._cut()

    def hold(self, *, out: bool = True, back: bool = True) -> None:
        """Nothing passes in these directions until it heals."""

        async def change() -> None:
            for way, held in ((self._out, out), (self._back, back)):
                if held:
                    way.clear()

        self._network.run(change())

    def delay(self, seconds: float) -> None:
        """Each piece takes that much longer."""
        self.delay_seconds = seconds

    def cut(self) -> None:
        """Reset every connection."""

        async def change() -> None:
            self._cut()

        self._network.run(change())

    def refuse(self) -> None:
        """Nobody listens any more."""
        self._network.run(self.close())

    def heal(self) -> None:
        """As it should be."""

        async def change() -> None:
            if self._drops and not (self._out.is_set() and self._back.is_set()):
                self._cut()
            self.delay_seconds = 0.0
            self._out.set()
            self._back.set()
            if self._server is None:
                await self.open()

        self._network.run(change())

    def _cut(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer)
        self._pairs.add(pair)
        try:
            await self._talk(pair, reader, writer)
        except (OSError, asyncio.CancelledError):  # a reset, on either side: the other one hears of it
            pair.reset()
        finally:
            self._pairs.discard(pair)
            pair.close()

    async def _talk(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._drops:
            await self._out.wait()
        far_reader, far_writer = await asyncio.open_connection(_LOOPBACK, self._target)
        pair.writers.append(far_writer)
        await asyncio.gather(
            self._pump(self._out, reader, far_writer), self._pump(self._back, far_reader, writer)
        )

    async def _pump(
        self, way: asyncio.Event, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(65536):
            if not await self._may_pass(way):
                continue
            sink.write(data)
            await sink.drain()
        if await self._may_pass(way):
            with suppress(OSError):
                sink.write_eof()

    async def _may_pass(self, way: asyncio.Event) -> bool:
        if self._drops and not way.is_set():
            return False
        await way.wait()
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        return True


class _Pair:
    """The two ends of a connection through a link."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.writers = [near]

    def reset(self) -> None:
        """As if a cable had been cut and somebody noticed."""
        for writer in self.writers:
            opened = writer.get_extra_info("socket")
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
