"""A stand-in for the Hugging Face Hub on this machine: what its client asks of it to push, to look and to fetch."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_token_of_the_tests"


@dataclass
class Repository:
    private: bool
    branches: dict[str, str] = field(default_factory=dict)
    """Name -> commit."""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Commit -> files."""
    messages: list[str] = field(default_factory=list)

    def files(self, revision: str) -> dict[str, bytes] | None:
        """Of a branch or a commit; None if there is no such revision."""
        return self.commits.get(self.branches.get(revision, revision))

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        sha = hashlib.sha1(f"{len(self.commits)} {message}".encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        self.messages.append(message)
        return sha


class StandIn(ThreadingHTTPServer):
    """Repositories in memory. Writing needs the token, and so does reading what is private."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        """Contents of large files by their sha256."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _answer(self) -> None:
        body = self._body()
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        writes = self.command in ("POST", "PUT")
        if path[0] == "lfs":
            self._store(path[1], body)
        elif path == ["api", "validate-yaml"]:
            self._send({})
        elif writes and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401)
        elif path == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif path[:2] == ["api", "models"]:
            self._with_repository("/".join(path[2:4]), lambda repo: self._model(repo, path[4:], body))
        elif path[-4:] == ["info", "lfs", "objects", "batch"]:
            self._batch(json.loads(body))
        elif path[2:3] == ["resolve"]:
            self._with_repository("/".join(path[:2]), lambda repo: self._resolve(repo, path[3], "/".join(path[4:])))
        else:
            self._refuse(404)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _with_repository(self, name: str, answer) -> None:
        repo = self.server.repositories.get(name)
        if repo is None or (repo.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            self._refuse(401, "RepoNotFound")
        else:
            answer(repo)

    def _model(self, repo: Repository, path: list[str], body: bytes) -> None:
        what, revision = (path[0], path[1]) if path else ("revision", "main")
        files = repo.files(revision)
        if what == "branch":
            repo.branches.setdefault(revision, repo.branches["main"])
            self._send({})
        elif files is None:
            self._refuse(404, "RevisionNotFound")
        elif what == "revision":
            sha = repo.branches.get(revision, revision)
            siblings = [{"rfilename": name} for name in files]
            self._send({"id": "org/name", "sha": sha, "private": repo.private, "siblings": siblings})
        elif what == "tree":
            self._send([{"type": "file", "path": n, "size": len(x), "oid": _oid(x)} for n, x in files.items()])
        elif what == "preupload":
            asked = json.loads(body)["files"]
            modes = {name["path"]: "lfs" if name["path"].endswith(".safetensors") else "regular" for name in asked}
            self._send({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes.items()]})
        elif what == "commit":
            self._commit(repo, revision, dict(files), [json.loads(line) for line in body.splitlines()])

    def _commit(self, repo: Repository, branch: str, files: dict[str, bytes], lines: list[dict]) -> None:
        message = ""
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    message = value["summary"]
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.server.large[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        sha = repo.commit(branch, files, message)
        self._send({"commitUrl": f"{self.server.address}/org/name/commit/{sha}", "commitOid": sha})

    def _create(self, wanted: dict) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        answer = {"url": f"{self.server.address}/{name}"}
        if name in self.server.repositories:
            self._send({**answer, "error": "You already created this model repo"}, 409)
            return
        repo = self.server.repositories[name] = Repository(wanted.get("visibility") == "private")
        repo.commit("main", {}, "initial commit")
        self._send(answer)

    def _batch(self, wanted: dict) -> None:
        href = f"{self.server.address}/lfs/"
        objects = [{**one, "actions": {"upload": {"href": href + one["oid"]}}} for one in wanted["objects"]]
        self._send({"transfer": "basic", "objects": objects})

    def _store(self, oid: str, body: bytes) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.large[oid] = body
        self._send({})

    def _resolve(self, repo: Repository, revision: str, name: str) -> None:
        files = repo.files(revision)
        if files is None or name not in files:
            self._refuse(404, "RevisionNotFound" if files is None else "EntryNotFound")
            return
        sha, content = repo.branches.get(revision, revision), files[name]
        self._reply(200, content, {"X-Repo-Commit": sha, "ETag": f'"{_oid(content)}"'})

    def _send(self, data: object, status: int = 200) -> None:
        self._reply(status, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str = "") -> None:
        self._reply(status, b"{}", {"X-Error-Code": code} if code else {})

    def _reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(content: bytes) -> str:
    """As git names a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def hub_stand_in(monkeypatch: pytest.MonkeyPatch, cache: Path, token: str | None = TOKEN) -> Iterator[StandIn]:
    """The client of this process talks to a new stand-in, with a cache of its own, and logged in unless told so.

    Large files go by LFS: the stand-in has no Xet storage.
    """
    point_client_at(monkeypatch, cache, "", token)
    with StandIn() as server:
        point_client_at(monkeypatch, cache, server.address, token)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def point_client_at(monkeypatch: pytest.MonkeyPatch, cache: Path, address: str, token: str | None = TOKEN) -> None:
    """What HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_DISABLE_XET and HF_TOKEN do for a new process."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(cache / "token"))
    if token is None:
        monkeypatch.delenv("HF_TOKEN", raising=False)
    else:
        monkeypatch.setenv("HF_TOKEN", token)
