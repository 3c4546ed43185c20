"""Downloads: checked, bounded and never half there. A server of this process stands for the net."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from farm.trainers.datasets.download import RemoteFile, fetch
from farm.trainers.failures import DatasetMissing

CONTENT = bytes(range(256)) * 4000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.path == "/stalls":
            self.wfile.write(CONTENT[:1000])
            self.wfile.flush()
            self.server.shutting_down.wait(30)  # type: ignore[attr-defined]
        elif self.path == "/breaks":
            self.wfile.write(CONTENT[:1000])
        else:
            self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.shutting_down = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutting_down.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def remote(url: str, *, content: bytes = CONTENT) -> RemoteFile:
    return RemoteFile(file_name="set.npz", url=url, sha256=hashlib.sha256(content).hexdigest())


def test_a_download_lands_complete_in_a_folder_it_makes(url: str, tmp_path: Path) -> None:
    path = fetch(remote(f"{url}/file"), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "set.npz"
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "message"),
    [("file", "sha256"), ("missing", "404"), ("breaks", "sha256"), ("stalls", "timed out")],
)
def test_a_failed_download_says_why_and_leaves_nothing(
    url: str, path: str, message: str, tmp_path: Path
) -> None:
    wanted = remote(f"{url}/{path}", content=b"something else")
    with pytest.raises(DatasetMissing, match=message) as caught:
        fetch(wanted, tmp_path, connect_timeout_s=0.3)
    assert "\n" not in str(caught.value)
    assert f"put set.npz into {tmp_path}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_download_has_a_limit_as_a_whole(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match="too slow"):
        fetch(remote(f"{url}/file"), tmp_path, limit_s=-1.0)


def test_without_internet_the_message_says_where_the_file_belongs(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match=r"cannot be downloaded.*put set\.npz into.*curl -fLo"):
        fetch(remote("http://127.0.0.1:1/file"), tmp_path, connect_timeout_s=1.0)
