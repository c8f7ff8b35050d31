"""The reference of configuration keys: name, type, default and meaning, read from the dataclasses' own source."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dglcell.config.experiment import KINDS, Config
from dglcell.data.sources import PartConfig
from dglcell.graph.catalogue import NetworkConfig
from site_extension.markdown import code, table

MORE = {"cell.networks.NAME": NetworkConfig, "data.source.union.parts[…]": PartConfig}
"""Sections that stand in mappings, lists, or several places."""

SECTION = "section"
"""In place of a default: the keys stand below."""

HEAD = """\
# Configuration keys

This page lists every key with its default. `dglcell config show FILE` prints an experiment with all keys, and
`dglcell config validate FILE` checks it. Unknown keys are refused with a suggestion. On the command line, write a
key as `key=value`. A file can extend another file with `extends:`, as the [quickstart](../quickstart.md) shows.
"""


def pages(root: Path) -> dict[str, str]:
    """The page, and a fragment for every model and loss."""
    sections = [HEAD]
    for name, kind in walk(Config, ""):
        sections.append(f"## `{name}`\n\n{keys(kind)}" if name else f"## Top level\n\n{keys(kind)}")
    for name, kind in MORE.items():
        sections.append(f"## `{name}`\n\n{keys(kind)}")
    made = {}
    for section, kinds in KINDS.items():
        for name, kind in kinds.items():
            made[f"parts/{section}-{name}.md"] = keys(kind)
            sections.append(f"## `{section}`, where `{section}.name: {name}`\n\n{keys(kind)}")
    return {**made, "configuration.md": "\n".join(sections)}


def walk(kind: type, prefix: str) -> list[tuple[str, type]]:
    """Sections and subsections in order; those whose keys depend on a name are left out."""
    found = [(prefix, kind)]
    for name, hint in get_type_hints(kind).items():
        full = f"{prefix}.{name}" if prefix else name
        if full in KINDS:
            continue
        for one in (hint, *get_args(hint)):
            if dataclasses.is_dataclass(one) and isinstance(one, type) and not _in_mapping(hint):
                found += walk(one, full)
    return found


def _in_mapping(hint: object) -> bool:
    return getattr(hint, "__origin__", None) in (dict, list)


def keys(kind: type) -> str:
    """A table of the fields of a dataclass."""
    declared: dict[str, tuple[str, str]] = {}
    for owner in reversed(kind.__mro__):
        if dataclasses.is_dataclass(owner):
            for name, (default, meaning) in declarations(owner).items():
                inherited = declared[name][1] if name in declared else ""
                declared[name] = default, meaning or inherited
    rows, hints = [], get_type_hints(kind)
    for field in dataclasses.fields(kind):
        default, meaning = declared[field.name]
        if default == SECTION:
            rows.append((code(field.name), "section", "", meaning))
        else:
            rows.append((code(field.name), code(type_name(hints[field.name])), code(default), meaning))
    return table(("key", "type", "default", "meaning"), rows)


def type_name(hint: Any) -> str:
    """As it would be written, without what is checked of values."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return " | ".join("None" if one is type(None) else type_name(one) for one in get_args(hint))
    inside = f"[{', '.join(map(type_name, get_args(hint)))}]" if get_args(hint) else ""
    return f"{getattr(hint, '__name__', hint)}{inside}"


@functools.cache
def declarations(owner: type) -> dict[str, tuple[str, str]]:
    """field → default and meaning: the comment behind it or above it, or its line below ``Attributes``."""
    source = textwrap.dedent(inspect.getsource(owner))
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    described = attributes(inspect.getdoc(owner) or "")
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            behind = lines[node.end_lineno - 1][node.end_col_offset :]
            above = list(itertools.takewhile(re.compile(" *#: ").match, reversed(lines[: node.lineno - 1])))
            said = [line.strip().lstrip("#: ") for line in above[::-1]]
            meaning = behind.partition("#")[2].strip(": ") or " ".join(said) or described.get(node.target.id, "")
            meaning = meaning.replace("``", "`")
            default = "" if node.value is None else _default(node.value)
            found[node.target.id] = default, meaning
    return found


def _default(value: ast.expr) -> str:
    """As it would stand in YAML, where that is short."""
    text = ast.unparse(value)
    factory = re.fullmatch(r"field\(default_factory=(?:lambda: )?(.*)\)", text)
    if factory:
        text = {"list": "[]", "dict": "{}"}.get(factory[1], factory[1])
        return SECTION if text.endswith("Config") else text.replace("'", "")
    if isinstance(value, ast.Constant):
        if isinstance(value.value, str):
            return value.value or '""'
        return {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text.lower() if text.isupper() else text


def attributes(doc: str) -> dict[str, str]:
    """The entries of a docstring's ``Attributes`` section."""
    section = doc.partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n      .*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()).replace("``", "`") for name, text in entries}
