"""The tables of docs/settings.md, made from the fields.

`python -m tests.cli.settings_page` writes them.
"""

from pathlib import Path
from typing import get_args

from typer.models import OptionInfo

from remask.cli.learn import SETTINGS as LEARNER_SETTINGS
from remask.cli.options import Group
from remask.cli.results import FILTER_OPTIONS
from remask.cli.trials import RUN_OPTIONS, SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
GROUPS = {
    "settings": SETTINGS,
    "options": RUN_OPTIONS,
    "filters": FILTER_OPTIONS,
    "learner": LEARNER_SETTINGS,
}


def table(group: Group) -> str:
    """A row per option: how it is written on the command line, in Python and files, and why."""
    rows = ["| option | name | |", "| --- | --- | --- |"]
    for option in group.options:
        info = next(part for part in get_args(option.annotation) if isinstance(part, OptionInfo))
        written = info.default if isinstance(info.default, str) else None
        flag = written or f"--{option.name.replace('_', '-')}"
        value = f" {info.metavar}" if info.metavar else ""
        rows.append(f"| `{flag}{value}` | `{option.name}` | {info.help} |")
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """Replace each table between its two marks by the one made from the fields."""
    for name, group in GROUPS.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, after = page.split(begin)[0], page.split(end)[1]
        page = f"{before}{begin}\n\n{table(group)}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
