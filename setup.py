"""What pyproject.toml cannot say: the addresses in the metadata, and a README that stands alone.

GitHub resolves the README's links within the repository; a package index cannot. So a build gets
the repository's address in REMASK_REPOSITORY (`make package` takes it from git), and links lead
there. A build that does not know the address, as from a bare clone, leaves text and no dead link.
"""

import os
import re
from pathlib import Path

_RELATIVE_LINK = re.compile(r"(!?)\[([^]]*)]\((?!https?:|#)([^)]+)\)")
_REMOTE = re.compile(
    r"(?:(?:https|ssh)://(?:[^/@]+@)?|[^/@]+@)([\w.-]+)(?::\d+)?[/:]([\w./-]+?)(?:\.git)?/?"
)


def web_address(remote: str) -> str | None:
    """The page of a repository, from how git names its remote; None if that is not on the web."""
    found = _REMOTE.fullmatch(remote)
    return f"https://{found[1]}/{found[2]}" if found else None


def standalone(readme: str, address: str | None) -> str:
    """The README with links and pictures that lead into the repository at `address`."""

    def replaced(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        if address is None:
            return "" if mark else text
        return f"{mark}[{text}]({address}/{'raw' if mark else 'blob'}/HEAD/{path})"

    return _RELATIVE_LINK.sub(replaced, readme)


def project_urls(address: str | None) -> dict[str, str]:
    """The addresses that a package index shows beside the README."""
    if address is None:
        return {}
    return {
        "Repository": address,
        "Documentation": f"{address}/tree/HEAD/docs",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


if __name__ == "__main__":
    from setuptools import setup

    repository = web_address(os.environ.get("REMASK_REPOSITORY", ""))
    setup(
        long_description=standalone(Path("README.md").read_text("utf-8"), repository),
        long_description_content_type="text/markdown",
        project_urls=project_urls(repository),
    )
