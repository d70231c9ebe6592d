"""The address of a Ray cluster, and whether a cluster answers there."""

import os
import socket
import sys
import tempfile
from pathlib import Path

from remask.errors import RemaskError

_SECONDS_TO_ANSWER = 10.0
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The preface of a client and its empty SETTINGS frame."""
_SETTINGS = 4
"""The type of the first frame that a server sends."""


class ClusterError(RemaskError):
    """The cluster cannot be used; the message says why, and what to do."""


def check_reachable(address: str | None) -> None:
    """Raise ClusterError unless a cluster answers within seconds; Ray itself tries for minutes.

    `address` is what the user gave. `local`, or an address that Ray is going to choose, passes.
    """
    place, source = _chosen_by_ray(address)
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        _greet(host.strip("[]"), int(port))
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {place}{source} ({error}). Start one with "
            f"`ray start --head`, which prints its address, or use `--address local` for a new one "
            f"on this machine alone."
        ) from error


def _chosen_by_ray(address: str | None) -> tuple[str, str]:
    """The address that Ray connects to, and where it is from; empty if Ray starts a cluster."""
    if address is not None and address != "auto":
        return address, ""
    if known := os.environ.get("RAY_ADDRESS"):
        return known, ", the address in $RAY_ADDRESS"
    file = _temporary_folder() / "ray" / "ray_current_cluster"
    try:
        return file.read_text().strip(), f", the address of the last cluster in {file}"
    except (OSError, ValueError):
        return "", ""


def _temporary_folder() -> Path:
    """Where Ray keeps its files."""
    for name in ("RAY_TMPDIR", "TMPDIR") if sys.platform == "linux" else ("RAY_TMPDIR",):
        if name in os.environ:
            return Path(os.environ[name])
    return Path("/tmp" if os.name == "posix" else tempfile.gettempdir())


def _greet(host: str, port: int) -> None:
    """Raise OSError unless a gRPC server listens: another program may have taken the port."""
    with socket.create_connection((host, port), timeout=_SECONDS_TO_ANSWER) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        connection.sendall(_HTTP2_GREETING)
        answer = b""
        while len(answer) < 4:
            if not (received := connection.recv(64)):
                break
            answer += received
        if answer[3:4] != bytes([_SETTINGS]):
            raise OSError("another program listens there")
