"""A local stand-in for the Hugging Face Hub: repositories as folders, behind its HTTP interface."""

import base64
import hashlib
import json
import re
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_stand_in"
OWNERS = {"ann": 200, "bob": 403}
"""Answer to those who want to create a repository of each owner; others are unknown."""


class Hub(ThreadingHTTPServer):
    """A hub with one token.

    Attributes:
        root: folder with a folder for each OWNER/NAME/BRANCH.
        private: visibility by repository.
        commits: message and paths of each commit.
        broken: pattern of requests, such as "PUT /lfs", whose connection is closed.
    """

    daemon_threads = True

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.objects, self.broken = root, {}, None
        self.private, self.commits = {}, []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repo, branch="main"):
        folder = self.root / repo / branch
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def sha(self, repo, branch):
        return hashlib.sha1(repr(sorted(self.files(repo, branch).items())).encode()).hexdigest()

    def branch(self, repo, revision):
        """The folder of a branch, or of the commit that it is at."""
        for folder in (self.root / repo).glob("*"):
            if revision in (folder.name, self.sha(repo, folder.name)):
                return folder.name
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def _answer(self, status, content=None, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _serve(self):
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.broken and re.match(self.server.broken, f"{self.command} {path}"):
            self.close_connection = True
            return
        if path.startswith("/lfs/"):
            self.server.objects[path[5:]] = body
            self._answer(200)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "Invalid credentials"})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._answer(200, {"errors": [], "warnings": []})
        elif match := re.match(r"/api/models/([^/]+/[^/]+)/?(\w*)/?(.*)", path):
            self._model(*match.groups(), body)
        elif match := re.match(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            objects = json.loads(body)["objects"]
            for one in objects:
                one["actions"] = {"upload": {"href": f"{self.server.address}/lfs/{one['oid']}"}}
            self._answer(200, {"transfer": "basic", "objects": objects})
        elif match := re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repo, revision, name = match.groups()
            branch = self.server.branch(repo, revision)
            content = self.server.files(repo, branch).get(name)
            if content is None:
                self._answer(404, X_Error_Code="EntryNotFound")
                return
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            self._answer(200, content, ETag=etag, X_Repo_Commit=self.server.sha(repo, branch))

    do_GET = do_HEAD = do_POST = do_PUT = _serve

    def _create(self, asked):
        repo = f"{asked['organization']}/{asked['name']}"
        status = OWNERS.get(asked["organization"], 404)
        if status != 200:
            self._answer(status, {"error": "You don't have the rights to create a model"})
            return
        folder = self.server.root / repo / "main"
        exists = folder.exists()
        if not exists:
            folder.mkdir(parents=True)
            (folder / ".gitattributes").touch()
            self.server.private[repo] = asked.get("visibility") == "private"
        self._answer(409 if exists else 200, {"url": f"{self.server.address}/{repo}"})

    def _model(self, repo, what, rest, body):
        rest, _, folder = rest.partition("/")
        hub, branch = self.server, self.server.branch(repo, rest or "main")
        if what == "branch":
            new = hub.root / repo / rest
            exists = new.exists()
            new.mkdir(exist_ok=True)
            self._answer(409 if exists else 200)
        elif branch is None:
            code = "RevisionNotFound" if (hub.root / repo).exists() else "RepoNotFound"
            self._answer(404, {"error": "Not found"}, X_Error_Code=code)
        elif folder:  # there are none
            self._answer(404, X_Error_Code="EntryNotFound")
        elif what in ("", "revision"):
            siblings = [{"rfilename": name} for name in hub.files(repo, branch)]
            said = {
                "id": repo,
                "private": hub.private.get(repo, False),
                "sha": hub.sha(repo, branch),
            }
            self._answer(200, {**said, "siblings": siblings})
        elif what == "tree":
            self._answer(200, [_entry(*one) for one in hub.files(repo, branch).items()])
        elif what == "preupload":
            self._answer(200, {"files": [
                {"path": one["path"], "shouldIgnore": False, "uploadMode": _mode(one["path"]),
                 "oid": self._oid(repo, branch, one["path"])}
                for one in json.loads(body)["files"]
            ]})  # fmt: skip
        elif what == "commit":
            self._commit(repo, branch, [json.loads(line) for line in body.splitlines()])

    def _oid(self, repo, branch, name):
        """The id by which a client sees that a file has not changed."""
        with suppress(KeyError):
            content = self.server.files(repo, branch)[name]
            if _mode(name) == "lfs":
                return hashlib.sha256(content).hexdigest()
            return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def _commit(self, repo, branch, lines):
        written = {}
        for line in lines[1:]:
            value = line["value"]
            lfs = line["key"] == "lfsFile"
            content = self.server.objects[value["oid"]] if lfs else None
            written[value["path"]] = content or base64.b64decode(value["content"])
        for name, content in written.items():
            (self.server.root / repo / branch / name).write_bytes(content)
        self.server.commits.append((lines[0]["value"]["summary"], sorted(written)))
        sha = self.server.sha(repo, branch)
        self._answer(200, {"commitUrl": f"{self.server.address}/{repo}", "commitOid": sha})


def _mode(name):
    return "lfs" if name.endswith((".safetensors", ".model")) else "regular"


def _entry(name, content):
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": name, "size": len(content), "oid": oid}
