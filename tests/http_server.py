"""A real web server on this machine, for downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Handler(BaseHTTPRequestHandler):
    """`/good` has the content, `/cut` half of what it announces, `/moved` leads elsewhere; there is nothing else."""

    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.path not in ("/good", "/cut", "/moved"):
            self.send_error(404)
            return
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        content = self.server.content
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.path == "/cut" else content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """Remembers the paths it was asked for; its content and where it leads can be replaced."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.content, self.redirect = content, ""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


def running(monkeypatch: pytest.MonkeyPatch, server: ThreadingHTTPServer) -> Iterator[None]:
    """Within it, a server answers."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> Iterator[Server]:
    server = Server(content)
    for _ in running(monkeypatch, server):
        yield server


class Folder(SimpleHTTPRequestHandler):
    """The files of a folder."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def serve_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Folder, directory=str(folder)))
    for _ in running(monkeypatch, server):
        yield f"http://127.0.0.1:{server.server_port}"
