"""What the site needs beyond MkDocs: formulas, examples and notebooks as pages, a check of the API.

Formulas become MathML, which browsers draw by themselves: no script and no font is loaded.
"""

import ast
import html
import json
import logging
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[1]
_LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".yaml": "yaml"}
_FORMULA = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
_EXAMPLE_LINK = re.compile(r"\]\((?P<up>(\.\./)*)\.\./examples(?:/(?P<path>[^)#]*))?\)")
_MATHML = "{http://www.w3.org/1998/Math/MathML}"
_SHOWN = re.compile(r"^::: (\S+)", re.MULTILINE)

_log = logging.getLogger("mkdocs.hooks.remask")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make a page of every example, so that links to them lead somewhere on the site, too."""
    files_of = sorted((_ROOT / "examples").rglob("*"))
    examples = [path for path in files_of if path.suffix in _LANGUAGES]
    notebooks = [path for path in files_of if path.suffix == ".ipynb"]
    listed = "\n".join(
        f"- `{path.name}`: [{_summary(path)}]({_page_of(path)})" for path in [*notebooks, *examples]
    )
    pages = {"README.md": f"# Examples\n\nThe files in `examples/`:\n\n{listed}\n"}
    for path in examples:
        code = path.read_text("utf-8")
        pages[_page_of(path)] = (
            f"---\ntitle: {path.name}\n---\n\n"
            f"# `examples/{path.relative_to(_ROOT / 'examples').as_posix()}`\n\n"
            f"````{_LANGUAGES[path.suffix]}\n{code}````\n"
        )
    for path in notebooks:
        pages[_page_of(path)] = _notebook(path)
    for name, text in pages.items():
        files.append(File.generated(config, f"examples/{name}", content=text))
    _check_docstrings(files)
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to the examples to their pages."""
    return _EXAMPLE_LINK.sub(_link_to_page, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML."""
    return _FORMULA.sub(lambda found: _formula(html.unescape(found[1]).strip()), content)


def _formula(tex: str) -> str:
    """Write a formula as MathML, overlines as borders: not every system's font can stretch one."""
    tree = ElementTree.fromstring(convert(tex, display="block"))
    for over in tree.iter(f"{_MATHML}mover"):
        accent = over[1]
        if accent.text in ("\N{MACRON}", "\N{HORIZONTAL BAR}"):
            over.tag = f"{_MATHML}mrow"
            over.set("class", "overline")
            over.remove(accent)
    ElementTree.register_namespace("", _MATHML.strip("{}"))
    return ElementTree.tostring(tree, encoding="unicode")


def _summary(example: Path) -> str:
    """The first line of a file's comment or docstring, or the title of a notebook."""
    if example.suffix == ".py":
        described = ast.get_docstring(ast.parse(example.read_text("utf-8"))) or ""
        return described.splitlines()[0]
    if example.suffix == ".ipynb":
        return "".join(_cells(example)[0]["source"]).splitlines()[0].lstrip("# ")
    lines = example.read_text("utf-8").splitlines()
    return next(line for line in lines if line.startswith("# ")).removeprefix("# ")


def _cells(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text("utf-8"))["cells"]
    return cells


def _notebook(path: Path) -> str:
    """The cells and saved outputs of a notebook as Markdown."""
    parts = []
    for cell in _cells(path):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                image = "".join(data["image/png"]).strip()
                parts.append(f"![Output of the cell above](data:image/png;base64,{image})")
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    parts.insert(1, f"Run it: `examples/{path.name}`")
    return "\n\n".join(parts) + "\n"


def _page_of(example: Path) -> str:
    inside = example.relative_to(_ROOT / "examples")
    return inside.with_suffix(".md").as_posix()


def _link_to_page(link: re.Match[str]) -> str:
    path = link["path"] or "README.md"
    return f"]({link['up']}examples/{Path(path).with_suffix('.md').as_posix()})"


def _check_docstrings(files: Files) -> None:
    """Warn, which fails a strict build, of what the API pages would show without a word on it."""
    package = griffe.load("remask", search_paths=[_ROOT / "src"], resolve_aliases=True)
    shown = [
        name
        for file in files.documentation_pages()
        if file.src_uri.startswith("api/")
        for name in _SHOWN.findall(file.content_string)
    ]
    for name in sorted({*shown, *(f"remask.{public}" for public in package.exports or ())}):
        found = package[name.removeprefix("remask.")]
        if name not in shown:
            _log.warning("%s is public, and on no page of docs/api", name)
        members = found.members.values() if found.is_class else ()
        for described in (found, *(m for m in members if m.is_public and not m.is_special)):
            if (described.is_function or described.is_class) and not described.has_docstring:
                _log.warning("%s has no docstring", described.path)
