"""Read experiments from YAML files, which others may have written and which extend each other, and dotted overrides."""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dglcell.checks import HIDDEN, check_one_line, read_section, shown
from dglcell.config.experiment import KINDS, Config
from dglcell.errors import ConfigError, did_you_mean, listing
from dglcell.losses.config import LossConfig
from dglcell.models.config import MODELS, ModelConfig
from dglcell.plugins import FOLDER, NOWHERE, NotImportedError, find_class, looking_in
from dglcell.published.file import read_declarations

log = logging.getLogger("dglcell")

DEFAULTS = {section: getattr(Config(), section).name for section in KINDS}
"""This maps each section to the kind that it has where it names none."""

SITE = "DGLCELL_SITE"
"""This variable has the path of a cluster's own settings: account, partition, modules, container."""

PACKAGED = next(folder for above in Path(__file__).parents[1:3] if (folder := above / "conf").is_dir())
"""This folder has the package's experiments; it lies in the installed package, or beside it in a clone."""

BASES = {name: kind.base for name, kind in MODELS.items() if kind.base}
"""This maps each model to the settings that fit it. An override of `model.name` extends these in place of another
model's."""

LEFT: dict[str, tuple[object, str]] = {
    "start_from": (None, "copy weights by `load_state_dict` in a loop of your own"),
    "loss.phenotype_weights": (None, "set `loss.name: gaussian`, which estimates the noise of each phenotype"),
    "data.source.csv.guides.places_by_sequence": (False, "name the column of sites by `guides.site`"),
}
"""Keys that have left, each with the value by which it did nothing, and what to do in its place. Runs of before have
them, and are read without."""

DEEPEST = 50  # levels of lists and mappings in one another at most; no experiment has as many


def load_config(path: str | Path, overrides: Sequence[str] = (), *, look: bool = False) -> Config:
    """Read and validate an experiment: the files it extends first, then itself, then the overrides.

    Where it extends one of ``BASES``, an override of `model.name` takes the new model's base in its place.

    Args:
        path: YAML file; its key ``extends`` names one file or a list, relative to it or of this package's ``conf``.
        overrides: texts ``dotted.key=value``; a key needs no section if only one section has it.
        look: import no class of one's own; its keys are then those that are written, and are not checked.

    Raises:
        ConfigError: a file is missing or not YAML, a key is unknown or mistyped, or a value has the wrong type.
    """
    chosen: Any = [OmegaConf.to_container(_parse_override(o)) for o in overrides if re.match(r"model(\.name)?=", o)]
    names = [of.get("name") if isinstance(of := one["model"], dict) else of for one in chosen]
    base = BASES.get(next((str(name) for name in reversed(names) if name), ""))
    merged = _merge(str(path), _site(), _layers(Path(path), (), base))
    with looking_in(NOWHERE if look else FOLDER), suppress(NotImportedError):
        config = parse_config(merged, overrides, where=str(path))
        if not config.experiment.name:
            folders = Path(path).resolve().parent.parts
            below = folders[len(folders) - folders[::-1].index("conf") :] if "conf" in folders else ()
            config.experiment.name = "/".join([*below, Path(path).stem])
        config.validate()
    return config


def _site() -> DictConfig:
    """Read the settings of every experiment on this cluster: the section `slurm` of the file that ``SITE`` names."""
    path = os.environ.get(SITE)
    if not path:
        return OmegaConf.create({})
    content = read_yaml(Path(path))
    if set(content) != {"slurm"}:
        what, got = f"'{path}', which {SITE} names, has other sections than `slurm`", listing(map(str, content))
        raise ConfigError(what, got=got or "nothing", expected="slurm: {account: …, partition: …}")
    return content


def experiment_file(name: str | Path) -> Path:
    """Return the file of an experiment.

    Args:
        name: its path; or its name, without ``.yaml``, in the working folder, in the folder ``conf`` or among the
            experiments of this package.
    """
    path = Path(name)
    expected = "a YAML file, or the name of one of this package's experiments"
    if path.is_file() and path.suffix in (".csv", ".tsv", ".gz", ".parquet", ".xlsx"):
        do = f"write its experiment with `dglcell init NAME --table {shlex.quote(str(name))}`"
        raise ConfigError(f"'{name}' is a table, and no experiment", expected=expected, do=do)
    if path.is_file():
        return path
    there = {
        file.relative_to(folder).with_suffix("").as_posix(): file
        for folder in (PACKAGED, Path("conf"))
        for file in folder.rglob("*.yaml")
    }
    there |= {file.stem: file for file in Path().glob("*.yaml")}
    key = path.with_suffix("").as_posix() if path.suffix == ".yaml" else path.as_posix()
    key = key.removeprefix("conf/")
    if key in there:
        return there[key]
    what = f"'{name}' is a folder, and no experiment" if path.is_dir() else f"experiment '{name}' not found"
    raise ConfigError(what, expected=expected, do=did_you_mean(key, there, "see `dglcell config show`"))


def named_experiments() -> dict[str, str]:
    """Return the names of this package's experiments, with a line about each."""
    found = {}
    for path in sorted(PACKAGED.rglob("*.yaml")):
        about = read_yaml(path).get("experiment")
        if about is not None:  # others are parts that experiments share
            about = about if "description" in about else _layers(path, ()).experiment
            found[path.relative_to(PACKAGED).with_suffix("").as_posix()] = str(about.get("description", ""))
    return found


def parse_config(content: DictConfig, overrides: Sequence[str] = (), *, where: str) -> Config:
    """Turn merged YAML into a ``Config``, without the checks between keys."""
    top = {field.name for field in dataclasses.fields(Config)}
    short = [one for one in overrides if (found := re.match("([^.=]+)=", one)) and found[1] not in top]
    try:
        merged = _merge(where, content, *[_parse_override(one) for one in overrides if one not in short])
        plain = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        cell = plain.get("cell")
        if isinstance(cell, dict) and isinstance(networks := cell.get("networks"), dict):
            # `cell.networks.NAME: null` removes a network of an extended file.
            cell["networks"] = {name: network for name, network in networks.items() if network is not None}
        for key, (idle, _) in LEFT.items():
            _forget(plain, key, idle)
    except OmegaConfBaseException as error:
        what = f"`{error.full_key}` has a wrong value" if error.full_key else "not a configuration"
        raise ConfigError(f"{where}: {what}", got=str(error).splitlines()[0]) from error
    except (RecursionError, OverflowError) as error:
        # What one text may hold is checked as it is read; interpolations may still lead from one to the next.
        what = f"{where}: values are nested too deep, or refer to themselves"
        raise ConfigError(what, got=error, do="look for `${…}` that leads back to its own key") from None
    kinds = {section: _kind(plain, section, where) for section in KINDS}
    hints = get_type_hints(Config) | kinds
    if short:
        full = [_with_section(one, hints, where) if one in short else one for one in overrides]
        return parse_config(content, full, where=where)

    def remedy(key: str, value: object) -> str | None:
        if key in LEFT:
            return LEFT[key][1]
        found = [] if "." in key else _in_sections(key, hints)
        return explain(key, value) or (f"did you mean `{found[0]}`?" if len(found) == 1 else None)

    made = {name: read_section(kind, plain.get(name, {}), name, where, remedy) for name, kind in kinds.items()}
    config: Config = read_section(Config, plain | made, "", where, remedy)
    _refuse_numbers(plain, config, "", where)
    return config


def _refuse_numbers(given: Any, made: Any, key: str, where: str) -> None:
    """Refuse texts that YAML has read as numbers, and that may have been written otherwise, as 1e5 or 1.10."""
    if isinstance(given, float) and isinstance(made, str) and not key.endswith(".na_values"):  # compared as numbers
        do = f"put it in quotes; on the command line {key}='\"…\"'"
        raise ConfigError(f"{where}: `{key}` was read as a number", got=shown(key, given), expected="a text", do=do)
    if isinstance(given, list):
        for pair in zip(given, made or (), strict=False):
            _refuse_numbers(*pair, key, where)
    elif isinstance(given, dict) and made is not None:
        parts = made if isinstance(made, dict) else vars(made)
        for name, value in given.items():
            _refuse_numbers(value, parts.get(name), f"{key}.{name}".lstrip("."), where)


def _forget(section: Any, key: str, idle: object) -> None:
    *above, name = key.split(".")
    for part in above:
        section = section.get(part) if isinstance(section, dict) else None
    if isinstance(section, dict) and name in section and section[name] == idle:
        del section[name]


def parse_inputs(recorded: DictConfig, *, where: str) -> Config:
    """Turn what a run recorded of its cell, data and paths into a ``Config``; no class of its model is imported."""
    sections = [name for name in ("cell", "data", "paths") if name in recorded]
    return parse_config(OmegaConf.masked_copy(recorded, sections), where=where)


def _parse_override(override: str) -> DictConfig:
    key, equals, value = override.partition("=")
    parts = key.split(".")
    said = f"{key}={HIDDEN}" if _may_be_secret(key) else override
    if not (equals and all(parts)) or len(parts) > DEEPEST:
        raise ConfigError("an override is not of the form key=value", got=said, do="e.g. trainer.epochs=10")
    if "[" in key:
        raise ConfigError(f"override `{key}` names a place in a list", got=said, do="give the whole list: key=[a,b]")
    try:
        return OmegaConf.from_dotlist([f"{key}={check_yaml(value)}"])
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        do = "close brackets and quotes"
        raise ConfigError(f"override `{key}`: its value is not YAML", got=said, do=do) from error


def override(key: str, value: object) -> str:
    """Return ``key=value`` as on the command line."""
    return f"{key}={json.dumps(value, default=str, ensure_ascii=False)}"  # YAML has no pairs of escapes for a letter


def _may_be_secret(key: str) -> bool:
    parts = [part for part in re.split(r"[.\[\]]+", key) if part]
    return parts[:1] == ["environment"] or (parts[:1] == ["slurm"] and parts[1:2] in ([], ["environment"]))


def hide_override(word: str) -> str:
    """Return the argument with ``HIDDEN`` in place of values of `slurm.environment`, so that it may be written down."""
    key, equals, _ = word.partition("=")
    if not (equals and _may_be_secret(key)):
        return word
    word = f"slurm.{word}" if key == "environment" else word  # which needs no section
    try:
        slurm: Any = OmegaConf.to_container(_parse_override(word))
    except (ConfigError, OmegaConfBaseException):
        return f"{key}='{HIDDEN}'"
    slurm = slurm.get("slurm")
    if not isinstance(slurm, dict) or (variables := slurm.get("environment")) is None:
        return word
    slurm["environment"] = dict.fromkeys(variables, HIDDEN) if isinstance(variables, dict) else HIDDEN
    return f"slurm={yaml.safe_dump(slurm, default_flow_style=True, width=2**30).strip()}"


def without_secrets(config: Config) -> DictConfig:
    """Return the whole configuration to be written down, with ``HIDDEN`` for values of `slurm.environment`."""
    content: DictConfig = OmegaConf.create(as_plain_text(dataclasses.asdict(config)))
    content.slurm.environment = dict.fromkeys(config.slurm.environment, HIDDEN)
    return content


def to_yaml(config: Config) -> str:
    """Return the whole configuration as YAML, with every default and without secrets."""
    return OmegaConf.to_yaml(without_secrets(config))


def _layers(path: Path, seen: tuple[Path, ...], base: str | None = None) -> DictConfig:
    """Merge the file ``path`` over those that it extends; ``base`` takes the place of another of ``BASES``."""
    if not path.is_file():
        by = f" (extended by '{seen[-1]}')" if seen else ""
        raise ConfigError(f"configuration '{path}' not found{by}", expected="a YAML file")
    if path.resolve() in [p.resolve() for p in seen]:
        circle = " → ".join(map(str, [*seen, path]))
        raise ConfigError("configurations extend each other in a circle", got=circle, do="remove `extends` from one")
    own = read_yaml(path)
    try:
        extends = own.pop("extends", None) or []
    except OmegaConfBaseException as error:
        expected = "a file name, or a list of them, without `${…}` of other keys"
        got = str(error).splitlines()[0]
        raise ConfigError(f"'{path}': `extends` cannot be resolved", got=got, expected=expected) from error
    names = [extends] if isinstance(extends, str) else extends
    if not isinstance(names, list | ListConfig) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"'{path}': `extends` names no files", got=extends, expected="a file name, or a list of them")
    for name in names:
        check_one_line(name, "extends")
    extended = [base if base is not None and name in BASES.values() else name for name in names]
    return _merge(str(path), *[_layers(_extended(path, name), (*seen, path), base) for name in extended], own)


def _extended(path: Path, name: str) -> Path:
    """Return the file that ``path`` extends: relative to it, or else one of this package's."""
    packaged = PACKAGED / name.removeprefix("conf/")
    beside = Path(os.path.normpath(path.parent / name))
    return packaged if packaged.is_file() and not beside.is_file() else beside


def _merge(where: str, *layers: DictConfig) -> DictConfig:
    """Merge later layers over the first, which is changed, without the keys that a section's new kind lacks."""
    merged, *others = layers
    for layer, section in itertools.product(layers, KINDS):
        if isinstance(layer.get(section), str):
            layer[section] = {"name": layer[section]}
    for layer in others:
        for section in KINDS:
            if _name(layer, section, None) not in (None, _name(merged, section, DEFAULTS[section])):
                _change_kind(merged, layer, section, where)
        try:
            merged.merge_with(layer)
        except TypeError as error:
            what = f"{where}: a key is a list in one place and a mapping in another"
            raise ConfigError(what, got=error, do="give it the form of the file that is extended") from error
    return merged


def _change_kind(merged: DictConfig, layer: DictConfig, section: str, where: str) -> None:
    """Keep the keys that both kinds have, and report which the new one lacks."""
    before = merged.pop(section, None)
    if not isinstance(before, DictConfig):
        return
    kind = _kind({section: {"name": layer[section].name}}, section, where)
    known = {field.name for field in dataclasses.fields(kind)} - {"name"}
    merged[section] = {key: value for key, value in before.items() if key in known}
    dropped = [f"`{section}.{key}`" for key in map(str, before) if key not in known and key != "name"]
    if dropped:
        are, name = "is" if len(dropped) == 1 else "are", layer[section].name
        # The user cannot change a file of the package, so this is logged for debugging only.
        level = logging.DEBUG if Path(where).resolve().is_relative_to(PACKAGED.resolve()) else logging.INFO
        log.log(level, "%s: %s %s left out, which `%s` does not have", where, listing(dropped, len(dropped)), are, name)


def _name(layer: DictConfig, section: str, default: str | None) -> Any:
    content = layer.get(section)
    return content.get("name", default) if isinstance(content, DictConfig) else default


def _kind(plain: dict[Any, Any], section: str, where: str) -> type:
    """Return the dataclass of a section whose keys depend on its name."""
    content = plain.get(section)
    name = str(content.get("name", DEFAULTS[section])) if isinstance(content, dict) else DEFAULTS[section]
    if name in KINDS[section]:
        return KINDS[section][name]
    try:
        kind: type = find_class(section, name, KINDS[section], where=f"{where}: `{section}.name`").Config
    except NotImportedError:  # its keys are those that are written, and at least those of its base
        base: type = {"model": ModelConfig, "loss": LossConfig}[section]
        keys = {field.name for field in dataclasses.fields(base)}
        more = [(str(key), Any, None) for key in plain[section] if key not in keys]
        return dataclasses.make_dataclass("Written", more, bases=(base,))
    return kind


def _in_sections(key: str, hints: Mapping[str, Any]) -> list[str]:
    """Return the key with each section that has it."""
    kinds = [(name, kind) for name, kind in hints.items() if dataclasses.is_dataclass(kind)]
    return [f"{name}.{key}" for name, kind in kinds if key in {field.name for field in dataclasses.fields(kind)}]


def _with_section(override: str, hints: Mapping[str, Any], where: str) -> str:
    """Put the section before the key of an override that names none, and that only one section has."""
    key, _, value = override.partition("=")
    found = _in_sections(key, hints)
    if len(found) > 1:
        raise ConfigError(f"key `{key}` is in several sections", got=", ".join(found), do=f"e.g. `{found[0]}=…`")
    if not found:
        below = (dataclasses.fields(kind) for kind in hints.values() if dataclasses.is_dataclass(kind))
        names = {*hints, *(field.name for fields in below for field in fields)}
        do = did_you_mean(key, names, "`dglcell config show` prints all keys")
        raise ConfigError(f"{where}: unknown key `{key}`", do=do)
    return f"{found[0]}={value}"


@functools.cache
def original_keys() -> tuple[dict[str, str], dict[str, str]]:
    """Return key of the original system → the key here, and key or section of it → why there is none here."""
    keys = read_declarations("dglcell.config", "original.yaml")
    return keys["renamed"], keys["dropped"]


def explain(key: str, value: object = None) -> str | None:
    """Return what a key of the original system is called here, or why there is none; None for one that never existed.

    Args:
        value: value of the key; where it is a section, each of its keys is explained.
    """
    renamed, dropped = original_keys()
    if key in renamed:
        return f"`{key}` of the original system is `{renamed[key]}` here"
    if isinstance(value, dict) and value and any(known.startswith(f"{key}.") for known in (*renamed, *dropped)):
        below = (explain(f"{key}.{name}", item) for name, item in value.items())
        return "; ".join(dict.fromkeys(filter(None, below))) or None
    section = next((k for k in dropped if key == k or key.startswith(f"{k}.")), None)
    return f"leave out `{key}` of the original system: {dropped[section]}" if section else None


def as_plain_text(value: Any) -> Any:
    """Escape ``${`` in all texts of a value, keys too, at any depth, so that OmegaConf takes them as they are."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + "\\${", value)
    if isinstance(value, dict):
        return {as_plain_text(key): as_plain_text(item) for key, item in value.items()}
    return [as_plain_text(item) for item in value] if isinstance(value, list | tuple) else value


def read_yaml(path: Path) -> DictConfig:
    """Read one YAML file, without the files that it extends."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"'{path}' not found", expected="a YAML file", do="check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        expected = "a text file in UTF-8 that may be read"
        raise ConfigError(f"'{path}' cannot be read as YAML", got=error, expected=expected) from error
    return parse_yaml(text, where=f"'{path}'")


def parse_yaml(text: str, *, where: str) -> DictConfig:
    """Parse a YAML text that is a mapping."""
    try:
        content = OmegaConf.load(io.StringIO(check_yaml(text)))
    except (yaml.YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        got, do = str(error).replace("\n", " "), "see whether keys are indented alike and brackets and quotation marks"
        raise ConfigError(f"{where} cannot be read as YAML", got=got, do=f"{do} are closed") from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"{where} holds no configuration", got=type(content).__name__, expected="a mapping of keys")
    return content


def check_yaml(text: str) -> str:
    """Return YAML with quotes around 2:00:00, 0123 and 2024_01, which YAML would take for 7200, 83 and 202401."""
    depth, marks, odd = 0, [0], re.compile(r"[-+]?([0-9][0-9_]*(:[0-9]{1,2})+(\.[0-9_]*)?|0[0-9]+|[0-9]*_[0-9_]*)")
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and odd.fullmatch(event.value):
            marks += [mark.index for mark in (event.start_mark, event.end_mark) if mark is not None]
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
    return "'".join(text[start:end] for start, end in itertools.pairwise([*marks, len(text)]))
