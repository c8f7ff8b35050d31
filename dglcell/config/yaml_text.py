"""Read YAML that others may have written: as plain text, not too deep, and with times as they are written."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dglcell.errors import ConfigError

DEEPEST = 50
"""Most levels of lists and mappings in one another. No experiment has as many."""


def as_plain_text(value: Any) -> Any:
    """Escape ``${`` in all texts of a value, keys too, at any depth, so that OmegaConf takes them as they are."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + "\\${", value)
    if isinstance(value, dict):
        return {as_plain_text(key): as_plain_text(item) for key, item in value.items()}
    return [as_plain_text(item) for item in value] if isinstance(value, list | tuple) else value


def read_yaml(path: Path) -> DictConfig:
    """Read one YAML file, without the files that it extends.

    Raises:
        ConfigError: the file is not YAML, or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"'{path}' not found", expected="a YAML file", do="check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"'{path}' cannot be read as YAML", got=error, expected="a text file in UTF-8 that may be read"
        ) from error
    return parse_yaml(text, where=f"'{path}'")


def parse_yaml(text: str, *, where: str) -> DictConfig:
    """Parse a YAML text that is a mapping.

    Raises:
        ConfigError: the text is not YAML, or no mapping.
    """
    try:
        content = OmegaConf.load(io.StringIO(check_yaml(text)))
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where} cannot be read as YAML",
            got=str(error).replace("\n", " "),
            do="see whether keys are indented alike and brackets and quotation marks are closed",
        ) from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"{where} holds no configuration", got=type(content).__name__, expected="a mapping of keys")
    return content


def check_yaml(text: str) -> str:
    """Return YAML with quotes around times like 2:00:00, which YAML would take for the number 7200.

    Raises:
        yaml.YAMLError: the text is nested too deep to be read.
    """
    depth, times, sixtieths = 0, [0], re.compile(r"[-+]?[0-9][0-9_]*(:[0-9]{1,2})+(\.[0-9_]*)?")
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and sixtieths.fullmatch(event.value):
            times += [mark.index for mark in (event.start_mark, event.end_mark) if mark is not None]
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
    return "'".join(text[start:end] for start, end in itertools.pairwise([*times, len(text)]))
