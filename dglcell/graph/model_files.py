"""Read metabolic models: from the catalogue, shipped with cobra, or any file in a format that cobra reads.

Nothing here uses the network.
"""

from __future__ import annotations

import ast
import gzip
import importlib.resources
import io
import logging
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.errors import DataError, GraphError, listing
from dglcell.files.atomic import sha256_file
from dglcell.graph.catalogue import MODELS, provenance
from dglcell.published.file import UNCHECKED, PublishedFile

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger("dglcell")

SHIPPED = {
    "textbook": "textbook.xml.gz",
    "iJO1366": "iJO1366.xml.gz",
    "salmonella": "salmonella.xml.gz",
    "mini": "mini.json",
}
"""This maps the models inside the cobra package to their files."""

FORMATS = {
    ".xml": "sbml",
    ".sbml": "sbml",
    ".json": "json",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".mat": "matlab",
}
"""This maps a file's extension (before ``.gz``) to its format."""

MALFORMED_RULE = "Malformed gene_reaction_rule "
"""cobra's warning about a rule that it could not parse begins with this text."""

MOST_NESTED = 16
"""Operators inside each other in a gene rule; published models have three. cobra visits each operand twice."""


def locate_model(name_or_path: str, raw: str | None = None) -> Path:
    """Return the file of a model of the catalogue or of cobra, or the model file at a path (see `find_raw`).

    Raises:
        DataError: the catalogue's file is not the one it should be.
        GraphError: this is neither a known name nor an existing file with a known extension.
    """
    if name_or_path in SHIPPED:
        _import_cobra()
        folder = importlib.resources.files("cobra.data")
        return Path(str(folder.joinpath(SHIPPED[name_or_path])))
    if name_or_path not in MODELS:
        _check_extension(name_or_path)
    file = MODELS.get(name_or_path, PublishedFile(name_or_path))
    try:
        return file.find(raw).path
    except DataError as error:
        if file.is_here(raw):
            raise
        raise GraphError(f"metabolic model: {error}") from error


def _check_extension(name_or_path: str) -> None:
    suffixes = [suffix for suffix in Path(name_or_path).suffixes if suffix != ".gz"]
    if "/" not in name_or_path and (not suffixes or suffixes[-1][1:].isdigit()):
        raise GraphError(
            f"no metabolic model is called '{name_or_path}'",
            expected=f"{', '.join(MODELS)}; one that cobra ships ({', '.join(SHIPPED)}); or a path to a model file",
            do="correct the name, or save the model file and give its path",
        )
    if not suffixes or suffixes[-1] not in FORMATS:
        raise GraphError(
            f"metabolic model '{name_or_path}': the extension names no model format",
            got=suffixes[-1] if suffixes else "no extension",
            expected=", ".join(FORMATS) + ", each also with .gz",
            do="rename or convert the file",
        )


def model_origin(name_or_path: str, raw: str | None = None) -> dict[str, Any]:
    """Return where a model came from, as plain containers: hash, what it was compared with, and who made it.

    Raises:
        DataError, GraphError: for the same reasons as `locate_model`.
    """
    path = locate_model(name_or_path, raw)
    if name_or_path not in MODELS:
        trust = "shipped with cobra" if name_or_path in SHIPPED else UNCHECKED
        return {"sha256": sha256_file(path), "trust": trust}
    return provenance(name_or_path, MODELS[name_or_path].check(path))


def read_model(name_or_path: str, raw: str | None = None) -> Model:
    """Read a metabolic model.

    cobra's remarks about missing bounds or charges are kept from the terminal; a gene rule that it could not
    parse, which it would replace by an empty one, is an error here.

    Args:
        name_or_path: a name of `SHIPPED` or of the catalogue, or the path of a file in one of `FORMATS`, plain or
            with ``.gz``.
        raw: folder for relative paths; see `find_raw`.

    Raises:
        GraphError: the file is missing, truncated, of an unknown extension or unparsable, or a rule is
            malformed.
    """
    path = locate_model(name_or_path, raw)
    content = _content(path)
    extension = [suffix for suffix in path.suffixes if suffix != ".gz"][-1]
    parse = _parser(FORMATS[extension])
    with _quiet_cobra() as remarks, _visiting_once():
        try:
            model = parse(content)
        except Exception as error:
            # A damaged file fails in the parser or, when it parses as something else, anywhere in cobra and optlang.
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if isinstance(error, (RecursionError, MemoryError)):
                reason = "it, or a gene rule in it, is nested too deep, or is larger than the memory"
            raise GraphError(
                f"metabolic model '{path.name}' cannot be parsed as {FORMATS[extension]}",
                got=reason,
                do="check that the file is whole and that its extension tells its format",
            ) from error
    malformed = sorted({remark for remark in remarks if remark.startswith(MALFORMED_RULE)})
    if malformed:
        raise GraphError(
            f"metabolic model '{path.name}': {len(malformed):,} gene rules cannot be parsed",
            got=listing((remark.removeprefix(MALFORMED_RULE) for remark in malformed), limit=3),
            expected="gene names joined by 'and', 'or' and parentheses",
            do="mend these rules in the model file",
        )
    deep = [reaction.id for reaction in model.reactions if _depth(reaction.gpr.body) > MOST_NESTED]
    if deep:
        raise GraphError(
            f"metabolic model '{path.name}': {len(deep):,} gene rules are nested too deep",
            got=f"reactions {listing(deep, limit=3)}",
            expected=f"at most {MOST_NESTED} operators inside each other",
            do="simplify these rules in the model file",
        )
    return model


def _depth(body: ast.AST | None) -> int:
    """Return how many operators of a gene rule are inside each other."""
    depth, level = 0, [] if body is None else [body]
    while level := [node for node in level if isinstance(node, ast.BoolOp)]:
        depth += 1
        level = [operand for node in level for operand in node.values]
    return depth


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GraphError(
            f"metabolic model '{path.name}' is not a whole gzip file",
            got=f"{len(content):,} bytes; {error}",
            do="copy or download the file again",
        ) from error


def _parser(format_name: str) -> Callable[[bytes], Model]:
    """Return the function that parses a format."""
    _import_cobra()
    import cobra.io

    parsers: dict[str, Callable[[bytes], Model]] = {
        "sbml": lambda content: cobra.io.read_sbml_model(io.StringIO(content.decode())),
        "json": lambda content: cobra.io.from_json(content.decode()),
        "yaml": lambda content: cobra.io.from_yaml(content.decode()),
        "matlab": lambda content: cobra.io.load_matlab_model(io.BytesIO(content)),
    }
    return parsers[format_name]


def _import_cobra() -> None:
    """Import cobra, even where the folder for a cache that it makes on import cannot be made."""
    try:
        import cobra.io
    except OSError as error:
        log.warning("cobra's folder for its cache cannot be made, and is not needed: %s", error)
        before = os.environ.get("XDG_CACHE_HOME")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            try:
                import cobra.io  # noqa: F401
            finally:
                os.environ.pop("XDG_CACHE_HOME")
                if before is not None:
                    os.environ["XDG_CACHE_HOME"] = before


@contextmanager
def _visiting_once() -> Iterator[None]:
    """Let cobra visit every operand of a gene rule once as it collects genes, so that deep rules end at all."""
    from cobra.core.gene import GPRWalker

    twice = GPRWalker.visit_BoolOp
    GPRWalker.visit_BoolOp = ast.NodeVisitor.generic_visit
    try:
        yield
    finally:
        GPRWalker.visit_BoolOp = twice


@contextmanager
def _quiet_cobra() -> Iterator[list[str]]:
    """Collect cobra's warnings instead of printing them."""
    logger = logging.getLogger("cobra")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    remarks: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield remarks
    finally:
        logger.setLevel(level)
        remarks.extend(str(warning.message) for warning in caught)
