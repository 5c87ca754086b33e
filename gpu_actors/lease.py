"""Leases of physical devices, between processes and runs on one host: lock files.

Timing takes a device exclusively; gates share it. Two runs on one host don't know of each other, but both know the
files. Whoever asks passes a turnstile first: a timing that waits holds it, so that gates which keep coming from other
runs can't pass it by for ever. The kernel releases a lock when its holder dies, however it dies.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ckb.errors import UserError
from gpu_actors.gpus import VARIABLE, visible
from gpu_actors.say import Say, silent

FOLDER = Path("/tmp/enginesmith-leases")
"""The same for every user and run of the host, whatever their TMPDIR says."""
POLL_S = 0.2
PASSING_S = 1.0
"""How long a device may be taken before somebody is told: everyone holds the turnstile for a moment."""


def physical_devices(accelerator: str, library: Any = None) -> tuple[str, ...]:
    """Names of the devices that this process may use, in the order in which everyone locks them: the CPU is one
    device, a GPU one each, by its UUID. Without NVML a GPU goes by its spelling. `library`: as for gpus.visible."""
    if accelerator == "cpu":
        return ("cpu",)
    gpus = visible(library)
    if gpus is None:
        spelled = os.environ.get(VARIABLE, "0").split(",")
        return tuple(f"{accelerator}-{entry.strip()}" for entry in sorted(spelled))
    return tuple(sorted({f"{accelerator}-{gpu.uuid}" for gpu in gpus}))


class Lease:
    """Holds devices while it is entered. Waits for others; raises UserError after `patience_s`."""

    def __init__(
        self,
        devices: tuple[str, ...],
        *,
        exclusive: bool,
        patience_s: float = 1800.0,
        folder: Path = FOLDER,
        on_wait: Say = silent,
    ):
        """`on_wait` is called once, in words, when a device is not free within a second."""
        self._devices = devices
        self._exclusive = exclusive
        self._patience_s = patience_s
        self._folder = folder
        self._on_wait = on_wait
        self._held: list[int] = []

    def __enter__(self) -> "Lease":
        deadline = time.monotonic() + self._patience_s
        try:
            for device in self._devices:  # in one order everywhere, so that two waiters can't block each other
                turnstile = self._acquire(f"{device}.turnstile", fcntl.LOCK_EX, deadline)
                self._acquire(f"{device}.lock", fcntl.LOCK_EX if self._exclusive else fcntl.LOCK_SH, deadline)
                if not self._exclusive:
                    self._held.remove(turnstile)
                    os.close(turnstile)
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        while self._held:
            os.close(self._held.pop())  # closing the last descriptor drops the lock

    def _open(self, name: str) -> int:
        """The file of that name, which every user of the host may open: the umask is the process's, so rights are set
        afterwards. O_CREAT is left out where the file is there: in a folder that all may write to, the kernel refuses
        it on another user's file (fs.protected_regular)."""
        path = self._folder / name
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            with suppress(PermissionError):  # somebody else was first
                self._folder.chmod(0o1777)
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        except PermissionError:
            raise UserError(f"{path} can't be opened: let every user read and write it, or remove it") from None
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return self._open(name)
        os.fchmod(fd, 0o666)
        return fd

    def _acquire(self, name: str, mode: int, deadline: float) -> int:
        device = name.rpartition(".")[0]
        fd = self._open(name)
        self._held.append(fd)
        start, waited = time.monotonic(), False
        while True:
            try:
                fcntl.flock(fd, mode | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if not waited and time.monotonic() > start + PASSING_S:
                    self._on_wait(f"waiting for the device {device}: another run on this host holds it")
                    waited = True
                if time.monotonic() > deadline:
                    raise UserError(
                        f"device {device} has been leased by another run for over {self._patience_s:.0f} s "
                        f"({self._folder / name}); wait for that run or end it"
                    ) from None
                time.sleep(POLL_S)
