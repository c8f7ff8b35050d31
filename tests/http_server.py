"""A real web server on this machine, for downloads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class Handler(BaseHTTPRequestHandler):
    """`/good`, `/cut` (fewer bytes than announced), `/slow` (never ends), `/moved` (elsewhere); nothing else."""

    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        if self.path not in ("/good", "/cut", "/slow"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        if self.path == "/good":
            self.wfile.write(self.server.content)
            return
        self.wfile.write(self.server.content[:1_000])
        self.wfile.flush()
        if self.path == "/slow":
            self.server.stopped.wait(30)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """Remembers the paths it was asked for; its content and where it leads can be replaced."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.content = content
        self.redirect = ""
        self.stopped = threading.Event()

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://127.0.0.1:{self.server_port}/{path}"


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> Iterator[Server]:
    """Provide a running server; skips where nothing can be downloaded."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server(content) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.stopped.set()
        running.shutdown()


class Folder(SimpleHTTPRequestHandler):
    """The files of a folder."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def serve_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    """Provide the address of a running server that has the files of a folder; skips where nothing can be downloaded."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Folder, directory=str(folder))) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
