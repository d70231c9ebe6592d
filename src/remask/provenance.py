"""Where a trial was computed: versions, commit and machine."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


@cache
def provenance() -> dict[str, Any]:
    """The `versions`, `commit` and `machine` of this process, as a record stores them."""
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("remask", "torch", "numpy")},
        },
        "commit": _commit(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": os.cpu_count() or 1,
        },
    }


def _commit() -> str | None:
    """The commit of remask's own source if it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None  # installed: a repository further up is not remask's
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
