"""Talk to a kernel through the server's web socket, as JupyterLab's front end does.

The messages are those of the Jupyter protocol, in the server's JSON framing; a message with
binary buffers (a view's state) arrives in a frame with a table of offsets.

Examples
--------
>>> async def answer(server: LabServer) -> str:
...     async with connected_kernel(server, "notebooks/00_tour.ipynb") as kernel:
...         return (await kernel.execute("6 * 7")).results
"""

import json
import struct
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

from relaxlab.cli.lab.server import LabServer, ServerError

__all__ = ["CellOutput", "Kernel", "connected_kernel", "text_of"]

# A view's first message holds its whole trace; tornado's default limit is 10 MiB.
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024
_KERNEL_NAME = "python3"


def text_of(value: str | Sequence[str]) -> str:
    """Join a notebook's multi-line string, which may be stored as a list of lines."""
    return value if isinstance(value, str) else "".join(value)


@dataclass(slots=True)
class CellOutput:
    """The text a cell left behind.

    Attributes
    ----------
    stdout, stderr
        What it printed.
    results
        ``text/plain`` of everything it displayed, a line apart.
    error
        Class, message and traceback of what it raised, or None.
    """

    stdout: str = ""
    stderr: str = ""
    results: str = ""
    error: str | None = None

    @classmethod
    def from_notebook(cls, outputs: Sequence[dict[str, Any]]) -> "CellOutput":
        """Read the outputs stored in a notebook's cell."""
        collected = cls()
        for output in outputs:
            collected.add(output["output_type"], output)
        return collected

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Add one output; a kind which leaves no text is ignored."""
        match kind:
            case "stream" if content["name"] == "stderr":
                self.stderr += text_of(content["text"])
            case "stream":
                self.stdout += text_of(content["text"])
            case "execute_result" | "display_data":
                self.results += text_of(content["data"].get("text/plain", "")) + "\n"
            case "error":
                trace = _without_colours("\n".join(content["traceback"]))
                self.error = trace or f"{content['ename']}: {content['evalue']}"
            case _:
                pass


def _without_colours(text: str) -> str:
    """Drop the terminal's colour codes."""
    plain, *rest = text.split("\x1b[")
    return plain + "".join(piece.partition("m")[2] for piece in rest)


@dataclass(slots=True)
class Kernel:
    """A connected kernel."""

    name: str
    _socket: WebSocketClientConnection
    _session: str = field(default_factory=lambda: uuid.uuid4().hex)

    async def execute(self, code: str) -> CellOutput:
        """Run ``code`` and return what it left behind, once the kernel is idle again."""
        request = uuid.uuid4().hex
        await self._socket.write_message(
            json.dumps(
                {
                    "channel": "shell",
                    "header": {
                        "msg_id": request,
                        "msg_type": "execute_request",
                        "session": self._session,
                        "username": "relaxlab",
                        "version": "5.3",
                    },
                    "parent_header": {},
                    "metadata": {},
                    "content": {
                        "code": code,
                        "silent": False,
                        "store_history": True,
                        "user_expressions": {},
                        "allow_stdin": False,
                        "stop_on_error": False,
                    },
                }
            )
        )
        output = CellOutput()
        replied = idle = False
        while not (replied and idle):
            message = await self._receive()
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "execute_reply":
                replied = True
            elif kind == "status":
                idle = content["execution_state"] == "idle"
            else:
                output.add(kind, content)
        return output

    async def _receive(self) -> Any:
        frame = await self._socket.read_message()
        if frame is None:
            raise ServerError("the kernel's connection was closed: the kernel or the server died")
        return json.loads(frame if isinstance(frame, str) else _json_part(frame))


def _json_part(frame: bytes) -> bytes:
    """Return the JSON of a frame with buffers: a count, that many offsets, JSON, the buffers."""
    (count,) = struct.unpack_from("!I", frame)
    offsets = struct.unpack_from(f"!{count}I", frame, 4)
    return frame[offsets[0] : offsets[1] if count > 1 else len(frame)]


@asynccontextmanager
async def connected_kernel(server: LabServer, path: str) -> AsyncIterator[Kernel]:
    """Run a session of the notebook at ``path`` (relative to the server's root) in a block."""
    session: Any = await server.post(
        "sessions",
        {"path": path, "name": path, "type": "notebook", "kernel": {"name": _KERNEL_NAME}},
    )
    socket = await websocket_connect(
        server.websocket_request(f"kernels/{session['kernel']['id']}/channels"),
        max_message_size=_MAX_MESSAGE_BYTES,
    )
    try:
        kernel = Kernel(session["kernel"]["name"], socket)
        await kernel.execute("")
        yield kernel
    finally:
        socket.close()
    await server.delete(f"sessions/{session['id']}")
