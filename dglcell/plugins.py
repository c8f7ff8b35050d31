"""Import users' own models, terms, convolutions, losses, sources and simulators: classes that a configuration names by
``MODULE:CLASS``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pydantic import PydanticSchemaGenerationError

from dglcell.checks import read_section
from dglcell.errors import ConfigError, OwnClassError, did_you_mean, listing


@dataclass(frozen=True)
class Slot:
    """A slot is a key of experiments that may name a class of the user's own."""

    key: str  #: key that names the class in a configuration
    base: str  #: ``MODULE:CLASS`` that it is derived from; imported only where somebody names a class of their own
    adapt: str = ""  #: ``MODULE:FUNCTION`` that makes such a class of a module of torch; none where empty


SLOTS = {
    "model": Slot("model.name", "dglcell.models.model:StrainModel"),
    "term": Slot("model.terms", "dglcell.models.terms.term:Term"),
    "conv": Slot("model.conv", "dglcell.nn.convolutions:Convolution", "dglcell.nn.convolutions:as_convolution"),
    "loss": Slot("loss.name", "dglcell.losses.loss:Loss"),
    "source": Slot("data.source.name", "dglcell.data.sources:Source"),
    "simulator": Slot("data.computed", "dglcell.data.sources:Simulator"),
}

FORM = "MODULE:CLASS of your own"
"""Errors describe a class that is not part of this package with these words."""

INSTALLED, FOLDER, NOWHERE = "installed", "folder", "nowhere"

_where = ContextVar("where", default=INSTALLED)


class NotImportedError(ConfigError):
    """A class of one's own is named where nothing is imported."""


@contextmanager
def looking_in(where: str) -> Iterator[None]:
    """Choose where modules of own classes are found for the time of the context.

    Args:
        where: ``INSTALLED``, the default, is where Python finds modules. ``FOLDER`` is the working folder as well: for
            classes that the user has named, but not for those in a run, which may come from a stranger. ``NOWHERE``
            imports no class, where a file is only shown.
    """
    before = _where.set(where)
    try:
        yield
    finally:
        _where.reset(before)


def class_of(slot: str, name: str, shipped: Mapping[str, Any], also: Iterable[str] = ()) -> Any:
    """Return the class that a configuration names: one of this package, or as ``find_class`` takes it.

    Args:
        shipped: name → configuration of a class of this package, which has the class as ``implementation``.
        also: what else may stand there, for the error.
    """
    if name in shipped:
        return _import(SLOTS[slot].key, shipped[name].implementation)
    return find_class(slot, name, [*shipped, *also])


def find_class(slot: str, name: str, known: Iterable[str] = (), *, where: str = "", do: str | None = None) -> Any:
    """Import and check the class that a configuration names.

    Modules are looked up where Python looks them up. Where the user has named the class, they are also looked up in the
    working folder; see `looking_in`.

    Args:
        slot: a key of ``SLOTS``.
        name: ``MODULE:CLASS``.
        known: other names that may stand there, for the error where ``name`` is of another form.
        where: what that error names; the slot's key where empty.
        do: what it says to do where no known name is close.
    """
    about = SLOTS[slot]
    if ":" not in name:
        expected, do = ", ".join([*known, f"or {FORM}"] if known else [FORM]), did_you_mean(name, known, do)
        raise ConfigError(f"{where or f'`{about.key}`'} is unknown", got=name or "no name", expected=expected, do=do)
    made, base = _import(about.key, name), _import(about.key, about.base)
    if about.adapt and isinstance(made, type) and not issubclass(made, base):
        from torch import nn

        made = _import(about.key, about.adapt)(made) if issubclass(made, nn.Module) else made
    _check(about, name, made, base)
    return made


def _import(key: str, target: str) -> Any:
    module, _, name = target.partition(":")
    if not all(word.isidentifier() for word in (*module.split("."), name)):
        raise ConfigError(f"`{key}` names no class", got=target, expected="MODULE:CLASS, e.g. my_model:MyModel")
    is_own, where = not module.startswith("dglcell."), _where.get()
    if is_own and where == NOWHERE:
        raise NotImportedError(f"`{key}: {target}` is not imported here")
    path = [*sys.path]
    try:
        if is_own and where == FOLDER:
            sys.path.append("")
        found = importlib.import_module(module)
    except (ImportError, OSError) as error:  # DGL raises both
        got, expected = f"{type(error).__name__}: {error}", f"a module '{module}' that Python can import"
        do = _how_to_find(module.partition(".")[0], where)
        raise OwnClassError(f"`{key}: {target}` cannot be imported", got=got, expected=expected, do=do) from error
    finally:
        if is_own and where == FOLDER:
            sys.path[:] = [folder for folder in sys.path if folder or folder in path]
    if not hasattr(found, name):
        kinds = {n: value.__module__ for n, value in vars(found).items() if isinstance(value, type)}
        there = [n for n, own in kinds.items() if own == module] or list(kinds)
        expected = "one of its classes: " + listing(there) if there else "a module that defines a class"
        what, got = f"module '{module}' has no '{name}'", f"`{key}: {target}`"
        raise OwnClassError(what, got=got, expected=expected, do=did_you_mean(name, there))
    return getattr(found, name)


def _how_to_find(module: str, where: str) -> str:
    if module == "dgl":
        return "use Python 3.11 on Linux, `pip install dgl==1.1.3`; or set `model.conv` to gin or sage"
    if where == FOLDER:
        return f"work in the folder that holds {module}, or install it"
    return f"a run's class is not taken from the working folder: if you trust it, set PYTHONPATH to {module}'s folder"


def _check(about: Slot, target: str, made: Any, base: Any) -> None:
    """Refuse an object that is no class derived from the base, or lacks something, before anything runs."""
    named, wanted = f"`{about.key}: {target}`", about.base.replace(":", ".")
    is_derived = isinstance(made, type) and issubclass(made, base)
    if not is_derived:
        raise ConfigError(f"{named} cannot be used", got=made, expected=f"a class derived from {wanted}")
    lacking = [name for name in dir(made) if getattr(getattr(made, name), "__isabstractmethod__", False)]
    if lacking:
        raise ConfigError(f"{named} lacks the method `{lacking[0]}`", do=f"write it as {wanted} says")
    config = made.Config
    if not (isinstance(config, type) and issubclass(config, base.Config) and "__dataclass_fields__" in vars(config)):
        expected = f"a dataclass derived from {base.Config.__module__}.{base.Config.__qualname__}"
        raise ConfigError(f"{named}: its `Config` cannot be used", got=config, expected=expected)
    try:
        read_section(config, {})
    except (TypeError, ConfigError, PydanticSchemaGenerationError) as error:
        why, expected = str(error).splitlines()[0], "keys with a default each, of types that YAML has"
        raise ConfigError(f"{named}: its `Config` cannot be read from YAML", got=why, expected=expected) from error
