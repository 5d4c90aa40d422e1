"""A real S3 server on loopback for tests: moto's, in a process of its own, and a bad line to it."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW_DOWN = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>'
)

PASS, THROTTLE, LOSE, RESET = "pass", "503", "lose the answer", "lose the request"
Plan = Callable[[str, str], str]


def moto_python() -> str | None:
    """The Python that has moto, which pins packages that nothing else here should have pinned."""
    named = os.environ.get("CKPTZ_MOTO_PYTHON")
    found = Path(named) if named else ROOT / ".venv-moto" / "bin" / "python"
    return str(found) if found.exists() else None


needs_server = pytest.mark.skipif(
    moto_python() is None,
    reason="needs moto's S3 server, in an environment of its own: python -m venv .venv-moto && "
    ".venv-moto/bin/pip install 'moto[s3,server]' (or say where in CKPTZ_MOTO_PYTHON)",
)


def free_port() -> int:
    """A port that no client gets for its own end: it would keep a server from coming back."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """The server's process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._state = folder / "objects"
        self.start()

    def start(self) -> None:
        script = ROOT / "tests" / "moto_server.py"
        command = [moto_python() or "", str(script), str(self.port), str(self._state)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        """End the process at once; what it holds lasts."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def restart(self, pause: float = 0.2) -> None:
        self.stop()
        time.sleep(pause)
        self.start()


class Line:
    """A proxy in front of the server that does to each request what `plan` says."""

    def __init__(self, server: Server) -> None:
        self.plan: Plan = lambda method, path: PASS
        self.requests: list[tuple[str, str, str]] = []
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fate = line.plan(self.command, self.path)
                line.requests.append((self.command, self.path, fate))
                if fate == RESET:
                    self.drop()
                elif fate == THROTTLE:
                    self.answer(503, [("Content-Type", "application/xml")], SLOW_DOWN)
                else:
                    self.forward(body, fate)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

            def forward(self, body: bytes, fate: str) -> None:
                link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                try:
                    link.request(self.command, self.path, body, dict(self.headers.items()))
                    reply = link.getresponse()
                    data, head = reply.read(), reply.getheaders()
                except (OSError, http.client.HTTPException):
                    self.drop()
                    return
                finally:
                    link.close()
                if fate == LOSE:
                    self.drop()
                else:
                    self.answer(reply.status, head, data)

            def answer(self, status: int, head: list[tuple[str, str]], data: bytes) -> None:
                self.send_response_only(status)
                for name, value in head:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                size = dict(head).get("Content-Length", "0") if self.command == "HEAD" else None
                self.send_header("Content-Length", size or str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def drop(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def count(self, fate: str) -> int:
        return sum(one[2] == fate for one in self.requests)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def environment(port: int, deadline: float = 30) -> dict[str, str]:
    """What obstore reads."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "CKPTZ_NETWORK_DEADLINE": str(deadline),
    }
