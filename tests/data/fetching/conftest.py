"""Fixtures of the dataset tests: an empty cache, the toy dataset, a web server and an npm."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.data.fetching.toy import TOP, TOY, Server, toy_dataset, use


@pytest.fixture(autouse=True)
def cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path | None:
    """The folder of the toy in an empty cache; the toy has no sources."""
    if request.node.get_closest_marker("data"):  # on the real data
        return None
    monkeypatch.setenv("REMASK_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    use(toy_dataset(), monkeypatch)
    return tmp_path / "cache" / "cifar10"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The folder that the archive unpacks to."""
    folder = tmp_path / "mine" / TOP
    folder.mkdir(parents=True)
    for name, contents in TOY.files.items():
        (folder / name).write_bytes(contents)
    return folder


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), state.handler())
    state.url = f"http://127.0.0.1:{http.server_port}/"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def write_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write an npm that runs Python code; no other is on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")

    def write(body: str) -> None:
        script = folder / "npm"
        script.write_text(f"#!{sys.executable} -IS\nimport sys, time\n{body}\n")
        script.chmod(0o755)

    return write
