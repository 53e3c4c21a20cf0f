"""Two network namespaces and the sea between them, on which every packet passes through this process.

`tc netem` would do the same where the kernel has it; a pair of TUN devices asks for no more than root.
"""

import asyncio
import fcntl
import os
import random
import struct
import subprocess
from collections import Counter
from contextlib import suppress
from typing import Self

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# Addresses that are nobody's: they are kept for examples.
ADDRESSES = ("192.0.2.1", "192.0.2.2")
LARGEST_PACKET = 65_536


class NoSea(Exception):
    """This machine lets us make no network of our own."""


class Islands:
    """Two hosts with one address each; *names* are those of their namespaces.

    A packet is lost with chance *loss*, doubled with chance *doubling*, and takes up to *delay* seconds, so
    that packets overtake one another; while *cut* is set none passes.
    """

    def __init__(self, seed: int) -> None:
        self.names = tuple(f"hf{os.getpid()}-{end}" for end in "ab")
        self.loss = self.doubling = self.delay = 0.0
        self.cut = False
        self.counts: Counter[str] = Counter()
        self._dice = random.Random(seed)  # noqa: S311 - weather, not a secret
        self._ends: list[int] = []

    async def __aenter__(self) -> Self:
        try:
            for name, address in zip(self.names, ADDRESSES, strict=True):
                self._ends.append(self._raise(name, address))
        except (OSError, subprocess.CalledProcessError) as error:
            self._sink()
            said = getattr(error, "stderr", None) or error
            raise NoSea(said) from error
        loop = asyncio.get_running_loop()
        for here, there in (self._ends, self._ends[::-1]):
            loop.add_reader(here, self._ship, here, there)
        return self

    async def __aexit__(self, *_: object) -> None:
        for end in self._ends:
            asyncio.get_running_loop().remove_reader(end)
        self._sink()

    def _raise(self, name: str, address: str) -> int:
        _ip("netns", "add", name)
        end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        # Until it is in its namespace, where it has an address, nobody can reach it.
        device = name[-15:]
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
        _ip("link", "set", device, "netns", name)
        _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
        for link in (device, "lo"):
            _ip("-n", name, "link", "set", link, "up")
        return end

    def _sink(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            os.close(end)
        for name in self.names:
            with suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def _ship(self, here: int, there: int) -> None:
        try:
            packet = os.read(here, LARGEST_PACKET)
        except BlockingIOError:
            return
        if self.cut:
            self.counts["cut off"] += 1
        elif self._dice.random() < self.loss:
            self.counts["lost"] += 1
        else:
            self._send(there, packet)
            if self._dice.random() < self.doubling:
                self.counts["doubled"] += 1
                self._send(there, packet)

    def _send(self, there: int, packet: bytes) -> None:
        delay = self._dice.random() * self.delay
        asyncio.get_running_loop().call_later(delay, self._land, there, packet)

    def _land(self, there: int, packet: bytes) -> None:
        if there in self._ends:
            # A host that is full drops packets as any host does.
            with suppress(BlockingIOError):
                os.write(there, packet)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
