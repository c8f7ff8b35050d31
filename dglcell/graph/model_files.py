"""Read metabolic models: from the catalogue, shipped with cobra, or any file in a format that cobra reads.

Nothing here uses the network.
"""

from __future__ import annotations

import ast
import gzip
import importlib.resources
import io
import json
import logging
import os
import re
import tempfile
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from dglcell.errors import GraphError, count, listing
from dglcell.files.atomic import sha256_file
from dglcell.graph.catalogue import MODELS, provenance, read_names
from dglcell.graph.tables import read_aliases
from dglcell.graph.vocabulary import Vocabulary
from dglcell.published.file import UNCHECKED, PublishedFile

if TYPE_CHECKING:
    from cobra import Model
    from cobra.core.gene import GPR


log = logging.getLogger("dglcell")

SHIPPED = {
    "textbook": "textbook.xml.gz",
    "iJO1366": "iJO1366.xml.gz",
    "salmonella": "salmonella.xml.gz",
    "mini": "mini.json",
}
"""This maps the models inside the cobra package to their files."""

FORMATS = {".xml": "sbml", ".sbml": "sbml", ".json": "json", ".yml": "yaml", ".yaml": "yaml", ".mat": "matlab"}
"""This maps a file's extension (before ``.gz``) to its format."""


def locate_model(name_or_path: str, raw: str | None = None) -> Path:
    """Return the file of a model of the catalogue or of cobra, or the model file at a path (see `find_raw`)."""
    if name_or_path in SHIPPED:
        _import_cobra()
        folder = importlib.resources.files("cobra.data")
        return Path(str(folder.joinpath(SHIPPED[name_or_path])))
    if name_or_path not in MODELS:
        _check_extension(name_or_path)
    return MODELS.get(name_or_path, PublishedFile(name_or_path)).find(raw).path


def _check_extension(name_or_path: str) -> None:
    suffixes = [suffix for suffix in Path(name_or_path).suffixes if suffix != ".gz"]
    if "/" not in name_or_path and (not suffixes or suffixes[-1][1:].isdigit()):
        expected = f"{', '.join(MODELS)}; one that cobra ships ({', '.join(SHIPPED)}); or a path to a model file"
        raise GraphError(f"no metabolic model is called '{name_or_path}'", expected=expected)
    if not suffixes or suffixes[-1] not in FORMATS:
        what, got = f"metabolic model '{name_or_path}': the extension names no model format", suffixes[-1:]
        expected, do = f"{', '.join(FORMATS)}, each also with .gz", "rename or convert the file"
        raise GraphError(what, got=got[0] if got else "no extension", expected=expected, do=do)


def model_origin(name_or_path: str, raw: str | None = None) -> dict[str, Any]:
    """Return where a model came from, as plain containers: hash, what it was compared with, and who made it."""
    path = locate_model(name_or_path, raw)
    if name_or_path not in MODELS:
        trust = "shipped with cobra" if name_or_path in SHIPPED else UNCHECKED
        return {"sha256": sha256_file(path), "trust": trust}
    return provenance(name_or_path, MODELS[name_or_path].check(path))


def read_model(name_or_path: str, raw: str | None = None) -> Model:
    """Read a metabolic model of `SHIPPED`, of the catalogue, or of a file in one of `FORMATS`, plain or with ``.gz``.

    cobra's remarks are kept from the terminal. Reactions without bounds and names that are no genes are warned of; a
    gene rule that cobra could not parse, which it would replace by an empty one, is an error here.
    """
    path = locate_model(name_or_path, raw)
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            what, got = f"metabolic model '{path.name}' is not a whole gzip file", f"{len(content):,} bytes; {error}"
            raise GraphError(what, got=got, do="copy or download the file again") from error
    extension = [suffix for suffix in path.suffixes if suffix != ".gz"][-1]
    _import_cobra()
    with _quiet_cobra() as remarks, whole_rules():
        try:
            model, lacking = _parse(content, FORMATS[extension], remarks)
        except Exception as error:  # parsers of SBML, JSON, MATLAB and YAML fail in ways of their own
            raise _unparsable(path, FORMATS[extension], error) from error
        # Committed results have the names of these models that are no genes.
        no_genes = mend_rules(model, path.name, keep=name_or_path in (*SHIPPED, *MODELS))
    if lacking:
        assumed = Counter(model.reactions.get_by_id(name).bounds for name in lacking)
        which = f"{count(len(lacking), 'reaction')} without bounds ({listing(lacking, limit=3)})"
        found = ", ".join(f"{low:g} to {high:g} for {number:,}" for (low, high), number in assumed.items())
        log.warning("%s: %s; assumed: %s. Give each reaction its bounds in the file.", path.name, which, found)
    if no_genes:
        log.warning("%s: no genes, so that their reactions are always there: %s", path.name, listing(no_genes))
    return model


def _unparsable(path: Path, format_name: str, error: Exception) -> GraphError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, (RecursionError, MemoryError)):
        reason = "it, or a gene rule in it, is nested too deep, or is larger than the memory"
    elif (reaction := _reaction_at(error)) is not None:
        what = f"metabolic model '{path.name}': reaction '{reaction}' cannot be read"
        expected = "a lower bound that is not above the upper one, and numbers of known metabolites"
        return GraphError(what, got=reason, expected=expected, do="mend the reaction in the model file")
    do = "check that the file is whole and that its extension tells its format"
    return GraphError(f"metabolic model '{path.name}' cannot be parsed as {format_name}", got=reason, do=do)


def _reaction_at(error: Exception) -> str | None:
    """Return the reaction that cobra was reading when it failed; it does not say so itself."""
    from cobra import Reaction

    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        for name in ("reaction", "cobra_reaction", "new_reaction", "self"):
            found = frame.f_locals.get(name)
            found = found.get("id") if isinstance(found, dict) else found.id if isinstance(found, Reaction) else None
            if found:
                return str(found)
    return None


def _parse(content: bytes, form: str, remarks: list[str]) -> tuple[Model, list[str]]:
    """Return a model, and its reactions that have no bounds; ``remarks`` is where cobra's appear."""
    import cobra.io
    from cobra.io.dict import model_from_dict
    from cobra.io.yaml import yaml

    if form == "sbml":
        return _parse_sbml(content, remarks)
    if form == "matlab":
        return cobra.io.load_matlab_model(io.BytesIO(content)), []
    text = content.decode("utf-8-sig")
    document = json.loads(text) if form == "json" else yaml.load(text)
    model = model_from_dict(document)
    lacking = [one["id"] for one in document["reactions"] if not {"lower_bound", "upper_bound"} <= one.keys()]
    return model, lacking


MISSING_BOUND = re.compile(r"Missing (lower|upper) flux bound .* reaction: '<Reaction (\S+?)( .*)?>'")


def _parse_sbml(content: bytes, remarks: list[str]) -> tuple[Model, list[str]]:
    import cobra.io.sbml
    import libsbml

    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(content)  # libsbml has the bytes, because XML tells its own encoding
        file.flush()
        model = cobra.io.read_sbml_model(file.name)
        missing = [(found[2], found[1]) for found in map(MISSING_BOUND.match, remarks) if found]
        document: Any = libsbml.readSBMLFromFile(file.name).getModel() if missing else None
    lacking = {}
    for written, bound in missing:
        lacking[written] = cobra.io.sbml.F_REPLACE[cobra.io.sbml.F_REACTION](written)
        if bound == "lower" and not document.getReaction(written).getReversible():
            reaction = model.reactions.get_by_id(lacking[written])
            reaction.lower_bound = min(0.0, reaction.upper_bound)
    return model, [*lacking.values()]


def _import_cobra() -> None:
    """Import cobra, even where the folder for a cache that it makes on import cannot be made."""
    try:
        import cobra.io
    except OSError as error:
        log.warning("cobra's folder for its cache cannot be made, and is not needed: %s", error)
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, XDG_CACHE_HOME=folder):
            import cobra.io  # noqa: F401
    from cobra.core.gene import GPRWalker

    GPRWalker.visit_BoolOp = GPRWalker.generic_visit  # cobra would visit operands at depth n 2ⁿ times


@contextmanager
def _quiet_cobra() -> Iterator[list[str]]:
    """Keep cobra's remarks from the terminal, and yield the list of those that it logs."""
    logger, handler, remarks = logging.getLogger("cobra"), logging.Handler(), list[str]()
    handler.emit = lambda record: remarks.append(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    with warnings.catch_warnings(), mock.patch.multiple(logger, handlers=[handler], propagate=False):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.WARNING)
        try:
            yield remarks
        finally:
            logger.setLevel(level)


# Gene–protein–reaction rules as their authors mean them, where cobra alone would lose or misread them.


NO_GENE = re.compile(
    r"(g_|gene_)?(s_?0001|spont\w*|unknown\w*|unassigned|orphan\w*|gap_?fill\w*|no_?gene|non_?enzymatic|true|none|null)"
    r"([._-]\d+)?",
    re.IGNORECASE,
)
"""Models write these where a reaction needs no gene, or where nobody knows which."""

BARRED = re.compile(
    r"(?<![\w.])(?:fig\|[\w.:-]+|(?:bbm|bbs|dbj|emb|gb|gi|gim|gnl|lcl|pdb|pir|prf|ref|sp|tpd|tpe|tpg|tr)(?:\|[\w.:-]*)+)"
)
"""Names with bars, by RAST and by NCBI's tags of databases; cobra reads any other ``|`` as "or"."""

BAR = "__DGLCELL_BAR__"


def is_no_gene(name: str) -> bool:
    """Return whether a name in gene rules stands for no gene, as ``s0001`` and ``SPONT`` do."""
    return NO_GENE.fullmatch(name) is not None


@contextmanager
def whole_rules() -> Iterator[None]:
    """Let cobra keep bars in names, and keep on reading after a faulty rule.

    A rule that cannot be read becomes an empty one whose ``fault`` is its text.
    """
    from cobra.core.gene import GPR

    read = GPR.from_string

    def read_whole(cls: type[GPR], text: object) -> GPR:
        rule, written = GPR(), str(text or "").replace("()", "").strip()
        try:
            body = read(BARRED.sub(lambda name: name[0].replace("|", BAR), written)).body
            rule.body = body and _joined(body, frozenset())
            rule.update_genes()
        except TypeError:
            pass
        except (RecursionError, MemoryError):
            written = f"{written} (nested too deep)"
        if rule.body is None and written:
            rule.fault = written
        return rule

    with mock.patch.object(GPR, "from_string", classmethod(read_whole)):
        yield


def mend_rules(model: Model, where: str, *, keep: bool = False) -> list[str]:
    """Join equal operators inside each other, and take names that are no genes, unless they ``keep``, out of rules.

    A reaction that such a name alone would keep is there in every strain. The model was read within `whole_rules`.

    Returns:
        The names that are no genes.
    """
    if faults := [f"reaction {r.id}: {r.gpr.fault}" for r in model.reactions if hasattr(r.gpr, "fault")]:
        what, do = f"metabolic model '{where}': {len(faults):,} gene rules cannot be parsed", "mend them in the file"
        expected = "gene names joined by 'and', 'or' and parentheses"
        raise GraphError(what, got=listing(faults, limit=3), expected=expected, do=do)
    found = [] if keep else sorted(gene.id for gene in model.genes if is_no_gene(gene.id))
    for reaction in (one for one in model.reactions if one.gpr.body is not None):
        rule = type(reaction.gpr)()
        rule.body = _joined(reaction.gpr.body, frozenset(found))
        rule.update_genes()
        reaction.gpr = rule
    for name in found:
        model.genes.remove(name)
    if torn := [gene.id for gene in model.genes if "|" in gene.id and not gene.reactions]:
        what = f"metabolic model '{where}': {len(torn):,} names of genes have a '|', which means 'or' in gene rules"
        do = "write another sign in these names, in the list of genes and in the rules of the model file"
        raise GraphError(what, got=listing(torn, limit=3), do=do)
    return found


def _joined(node: ast.expr, no_genes: frozenset[str]) -> ast.expr | None:
    """Return a rule without operators inside equal ones; None where it holds whatever genes are deleted."""
    if isinstance(node, ast.Name):
        return None if node.id in no_genes else ast.Name(node.id.replace(BAR, "|"), ast.Load())
    if not isinstance(node, ast.BoolOp):
        raise TypeError(f"no rule of genes: {ast.dump(node)}")
    parts, operands = [_joined(one, no_genes) for one in node.values], list[ast.expr]()
    if isinstance(node.op, ast.Or) and None in parts:
        return None
    for part in filter(None, parts):
        operands += part.values if isinstance(part, ast.BoolOp) and type(part.op) is type(node.op) else [part]
    return ast.BoolOp(node.op, operands) if len(operands) > 1 else next(iter(operands), None)


# Names that metabolic models and the catalogue have for genes.


def named_aliases(name: str | None, raw: str | None = None) -> tuple[Vocabulary, Path | None]:
    """Return other names of genes of a metabolic model, what `read_names` reads, or nothing (None), and their file."""
    if name is None:
        return Vocabulary(), None
    if name in SHIPPED or name in MODELS or Path(name.removesuffix(".gz")).suffix in FORMATS:
        return model_aliases(read_model(name, raw)), locate_model(name, raw)
    found, _, path = read_names(name, read_aliases, raw)
    return found, path


ACCESSIONS = ("uniprot", "ncbigene", "ncbiprotein", "refseq_locus_tag", "refseq_synonym", "ecogene", "sgd")
"""Annotations of a metabolic model that are names of genes elsewhere."""


def model_aliases(model: Model) -> Vocabulary:
    """Return the genes of a metabolic model, with the names and accessions that it has for them."""
    names: dict[str, set[str]] = {}
    for gene in model.genes:
        if gene.name and gene.name.strip() and gene.name not in (gene.id, f"G_{gene.id}"):
            names.setdefault(gene.name.strip(), set()).add(gene.id)
        for kind in ACCESSIONS:
            found = gene.annotation.get(kind, [])
            for accession in [found] if isinstance(found, str) else found:
                names.setdefault(str(accession), set()).add(gene.id)
    shown = {gene.id: gene.name.strip() for gene in model.genes if gene.name and gene.name.strip() in names}
    genes = Vocabulary.of(gene.id for gene in model.genes)
    return Vocabulary(genes.names, {n: tuple(sorted(ids)) for n, ids in names.items() if n not in genes}, shown)
