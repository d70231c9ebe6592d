"""What building the site needs beyond MkDocs: formulas, the examples as pages, a look at the API.

Formulas become MathML, which browsers draw by themselves: no script and no font is loaded.
"""

import html
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
    examples = [
        path for path in sorted((_ROOT / "examples").rglob("*")) if path.suffix in _LANGUAGES
    ]
    listed = "\n".join(f"- [{path.name}]({_page_of(path)})" for path in examples)
    pages = {"README.md": f"# Examples\n\nThe files in `examples/`:\n\n{listed}\n"}
    for path in examples:
        code = path.read_text("utf-8")
        pages[_page_of(path)] = (
            f"---\ntitle: {path.name}\n---\n\n"
            f"# `examples/{path.relative_to(_ROOT / 'examples').as_posix()}`\n\n"
            f"````{_LANGUAGES[path.suffix]}\n{code}````\n"
        )
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
