"""Commands of ours as processes of their own: nothing that they say, load or run is the server's."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from ckb.errors import UserError
from swarm.mcp_server.tool import Report

OURS = (sys.executable, "-m", "swarm")
"""The command line of this installation."""
REFUSES = "enginesmith: "
"""What `swarm.cli.main` says before a message for the user."""
END_S = 20.0
"""Time that an interrupted command has to end what it started."""
KEPT = 4000
"""Characters of the output of a command that failed by a defect, for the log."""


class CommandFailed(Exception):
    """A command ended by a defect of ours, or was killed."""


@dataclass(frozen=True)
class Ended:
    """A command that ran to its end."""

    status: int
    output: str
    """Its stdout."""


async def run_to_end(arguments: Sequence[str], report: Report, command: Sequence[str] = OURS) -> Ended:
    """Runs a command and reports each line of its stderr. A call that is cancelled ends it.

    Raises UserError with the message of one that refused (exit status 2), CommandFailed for one that crashed.
    """
    process = await anyio.open_process([*command, *arguments], stdin=subprocess.DEVNULL, start_new_session=True)
    said: list[str] = []
    output: list[str] = []
    try:
        async with anyio.create_task_group() as readers:
            assert process.stdout
            assert process.stderr
            readers.start_soon(_gather, process.stdout, output)
            readers.start_soon(_tell, process.stderr, said, report)
        status = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            await process.aclose()
    check(status, "".join(said))
    return Ended(status, "".join(output))


def check(status: int, said: str) -> None:
    """Raises what a command's exit status means: 0 is fine, 1 an answer in the negative, 2 a refusal."""
    if status == 2 and REFUSES in said:
        raise UserError(said[said.rindex(REFUSES) + len(REFUSES) :].strip())
    if status not in (0, 1) or "Traceback (most recent call last)" in said:
        raise CommandFailed(f"exit status {status}: {said[-KEPT:]}")


async def _gather(stream: ByteReceiveStream, into: list[str]) -> None:
    into.extend([text async for text in TextReceiveStream(stream, errors="replace")])


async def _tell(stream: ByteReceiveStream, into: list[str], report: Report) -> None:
    """Keeps all and reports whole lines."""
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        into.append(text)
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            await report(line)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupts a command that is still there, as Ctrl-C would, and kills its group when it doesn't end."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _end(process: Process) -> None:
    """The same without holding up the loop."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    with anyio.move_on_after(END_S):
        await process.wait()
        return
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
