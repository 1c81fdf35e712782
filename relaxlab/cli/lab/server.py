"""A JupyterLab process: its command line, a private configuration, and its start and end.

The check and the browser tests need a server which neither reads nor leaves anything in the
reader's own configuration, answers before it is used, and is gone afterwards, whatever happened in
between.

Examples
--------
>>> async def greet(root: Path, scratch: Path) -> str:
...     async with running_server(root, scratch) as server:
...         return (await server.get("status"))["kernels"]
"""

import asyncio
import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

__all__ = [
    "LabServer",
    "ServerError",
    "free_port",
    "isolated_environment",
    "lab_command",
    "port_is_free",
    "running_server",
]

_HOST = "127.0.0.1"
# How long the server may take to end its kernels and itself before it is made to.
_GRACE_SECONDS = 4.0
_LOG_LINES = 15
# A saved setting of Lab's that would ask the network, or write to a notebook under test.
_OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


class ServerError(RuntimeError):
    """The server did not start, or refused a request."""


def lab_command(root: Path, *options: str) -> list[str]:
    """Return the command line of a JupyterLab on loopback that serves ``root``."""
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.ip={_HOST}",
        f"--ServerApp.root_dir={root}",
        # Ctrl-C means stop, without a question that a pipe could not answer.
        "--ServerApp.answer_yes=True",
        *options,
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command


def isolated_environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which Jupyter keeps all its state in ``scratch``.

    The folders are made; Lab's news pop-up and its autosave are off.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        # A token, a port or a config path of the reader's own server is not for this one.
        if not name.startswith(("JUPYTER", "JPY_"))
    }
    for name in ("CONFIG", "DATA", "RUNTIME"):
        environment[f"JUPYTER_{name}_DIR"] = str(scratch / name.lower())
    for name in ("SETTINGS", "WORKSPACES"):
        environment[f"JUPYTERLAB_{name}_DIR"] = str(scratch / f"lab-{name.lower()}")
    environment["IPYTHONDIR"] = str(scratch / "ipython")
    environment["JUPYTER_PREFER_ENV_PATH"] = "1"
    app_settings = scratch / "app-settings"
    app_settings.mkdir(parents=True, exist_ok=True)
    overrides = app_settings / "overrides.json"
    overrides.write_text(json.dumps(_OVERRIDES), encoding="utf-8")
    return environment


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            # As a server does: a connection in TIME_WAIT does not make a port taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass(frozen=True, slots=True)
class LabServer:
    """A server that answers.

    Attributes
    ----------
    port
        Port on 127.0.0.1.
    token
        What every request must carry.
    """

    port: int
    token: str

    @property
    def url(self) -> str:
        """The address, without a trailing slash."""
        return f"http://{_HOST}:{self.port}"

    def websocket_request(self, path: str) -> HTTPRequest:
        """Return the request that opens a web socket below ``/api/``."""
        return HTTPRequest(
            f"ws://{_HOST}:{self.port}/api/{path}",
            headers={"Authorization": f"token {self.token}"},
        )

    # The REST interface answers in JSON whose shape depends on the path: hence the object values.
    async def get(self, path: str) -> dict[str, object]:
        """Fetch ``/api/{path}``."""
        return await self._fetch("GET", path)

    async def post(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, object]:
        """Post a JSON body to ``/api/{path}``."""
        return await self._fetch("POST", path, json.dumps(body or {}))

    async def delete(self, path: str) -> None:
        """Delete ``/api/{path}``."""
        await self._fetch("DELETE", path)

    async def _fetch(self, method: str, path: str, body: str | None = None) -> dict[str, object]:
        request = HTTPRequest(
            f"{self.url}/api/{path}",
            method=method,
            body=body,
            headers={"Authorization": f"token {self.token}"},
        )
        try:
            response = await AsyncHTTPClient().fetch(request)
        except HTTPClientError as error:
            raise ServerError(f"{method} /api/{path} answered {error}") from error
        answer: dict[str, object] = json.loads(response.body) if response.body else {}
        return answer


@asynccontextmanager
async def running_server(
    root: Path, scratch: Path, *, port: int | None = None
) -> AsyncIterator[LabServer]:
    """Run a headless JupyterLab for the length of a ``with`` block.

    Parameters
    ----------
    root
        The folder it serves.
    scratch
        An existing folder for its configuration, its state and its log.
    port
        A free port; found when None.

    Raises
    ------
    ServerError
        The process ended before it answered; the message ends with its log.
    """
    server = LabServer(free_port() if port is None else port, secrets.token_hex(16))
    log = scratch / "server.log"
    command = lab_command(
        root,
        "--no-browser",
        f"--port={server.port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={server.token}",
        f"--LabApp.app_settings_dir={scratch / 'app-settings'}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
    )
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=isolated_environment(scratch),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            # Ctrl-C is for us; we then end the server in order.
            start_new_session=True,
        )
    try:
        await _until_it_answers(server, process, log)
        yield server
    finally:
        await _stop(server, process)


async def _until_it_answers(
    server: LabServer, process: asyncio.subprocess.Process, log: Path
) -> None:
    while True:
        if process.returncode is not None:
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
            raise ServerError("JupyterLab did not start:\n" + "\n".join(tail))
        try:
            await server.get("status")
        except OSError:
            await asyncio.sleep(0.1)
        else:
            return


async def _stop(server: LabServer, process: asyncio.subprocess.Process) -> None:
    """Ask, then insist, then kill: after this neither the server nor a kernel is left."""
    if process.returncode is not None:
        return
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await server.post("shutdown")
            await process.wait()
    except (TimeoutError, OSError, ServerError):
        if process.returncode is None:
            # Kernels have sessions of their own: a signal to the server's group misses them.
            family: list[psutil.Process | asyncio.subprocess.Process] = [process]
            # It may end just now: then it has no children either.
            with suppress(psutil.NoSuchProcess):
                family = [*psutil.Process(process.pid).children(recursive=True), process]
            for member in family:
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    member.kill()
            await process.wait()
