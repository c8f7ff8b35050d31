"""A server on this machine that takes runs as W&B's does, as far as ``wandb sync`` asks for it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY = "wandb-history.jsonl"
PROJECT = {"id": "p", "name": "project", "entity": {"id": "e", "name": "team"}}


@dataclass
class UploadedRun:
    """What the server holds of a run."""

    group: str | None = None
    config: str = "{}"
    files: dict[str, list[str]] = field(default_factory=dict)
    preempting: bool = False
    exit_code: int | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        """Return rows, in the order in which they are kept."""
        return [json.loads(line) for line in self.files.get(HISTORY, [])]


class Handler(BaseHTTPRequestHandler):
    """GraphQL on ``/graphql``, lines of files on ``…/RUN/file_stream``; whatever else is put is taken."""

    server: WandbServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = json.loads(self._body())
        if self.path == "/graphql":
            answer = getattr(self, f"_{content['operationName']}", lambda **_: {})
            self._reply({"data": answer(**content["variables"])})
            return
        run = self.server.runs[self.path.split("/")[-2]]
        for name, lines in content.get("files", {}).items():
            kept = run.files.setdefault(name, [])
            kept[lines["offset"] :] = lines["content"]
        run.preempting |= content.get("preempting", False)
        run.exit_code = content.get("exitcode", run.exit_code)
        self._reply({})

    def do_PUT(self) -> None:
        self._body()
        self._reply({})

    def do_GET(self) -> None:
        self._reply({})

    def _RunResumeStatus(self, name: str, **_: object) -> dict[str, Any]:
        run = self.server.runs.get(name)
        if run is None:
            return {"model": {**PROJECT, "bucket": None}}
        counts = {f"{kind}LineCount": 0 for kind in ("log", "events")} | {"historyLineCount": len(run.history)}
        tails = {"historyTail": json.dumps(run.files.get(HISTORY, [])[-1:]), "eventsTail": "[]"}
        said = {"summaryMetrics": "{}", "config": run.config, "wandbConfig": "{}", "tags": [], "notes": ""}
        return {
            "model": {**PROJECT, "bucket": {"id": name, "name": name, "displayName": name, **counts, **tails, **said}}
        }

    def _UpsertBucket(self, name: str, groupName: str | None, config: str | None, **_: object) -> dict[str, Any]:
        new = name not in self.server.runs
        run = self.server.runs.setdefault(name, UploadedRun())
        run.group, run.config = groupName or run.group, config or run.config
        bucket = {"id": name, "name": name, "displayName": name, "config": "{}", "project": PROJECT}
        return {"upsertBucket": {"bucket": {**bucket, "historyLineCount": len(run.history)}, "inserted": new}}

    def _CreateRunFiles(self, run: str, files: list[str], **_: object) -> dict[str, Any]:
        addresses = [{"name": file, "uploadUrl": f"{self.server.url}/files/{file}"} for file in files]
        return {"createRunFiles": {"runID": run, "uploadHeaders": [], "files": addresses}}

    def _body(self) -> bytes:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(content) if self.headers.get("Content-Encoding") == "gzip" else content

    def _reply(self, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class WandbServer(ThreadingHTTPServer):
    """Keeps runs by their ids."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[str, UploadedRun] = {}

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Nothing: clients that go away without a word are none."""
