"""Read what others wrote of genes: edges, groups, lists, other names, genomes, and numbers for each of some names."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, import_optional, listing, shorten
from dglcell.files.atomic import CONTROL, DAMAGE, MOST_COLUMNS, read_text
from dglcell.files.untrusted import UnreadableError, read_npz
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class EdgeTable:
    """Hold columns of one text file."""

    path: Path  #: the file
    #: requested column → the names in it as categories, in order and without surrounding blanks. The index is the line
    #: of the file, counted from 1.
    frame: pd.DataFrame
    labels: dict[str, str]  #: requested column → its name in the header (the request itself where there is no header)

    def __len__(self) -> int:
        return len(self.frame)

    def text(self, column: str, *, filled: bool = True) -> tuple[list[str], NDArray[np.int64]]:
        """Return the distinct names of a column, sorted, and the index of each row's, [rows]; of all if ``filled``."""
        values = self.frame[column]
        empty = self.frame.index[values == ""]
        if filled and len(empty):
            what = f"'{self.path.name}', line {empty[0]}: column '{self.labels[column]}' is empty"
            do = "mend the file, or choose another column"
            raise GraphError(what, got=f"{len(empty):,} such rows", do=do)
        used = values.cat.remove_unused_categories().cat
        return list(used.categories), np.asarray(used.codes, dtype=np.int64)

    def number(self, column: str) -> NDArray[np.float64]:
        """Return a column of finite numbers."""
        import pandas as pd

        written = self.frame[column]
        names = pd.Series(written.cat.categories, dtype=object)
        values = pd.to_numeric(names, errors="coerce").to_numpy(dtype=np.float64)[written.cat.codes]
        # A number beyond float32 would become infinite in the graph.
        bad = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
        if bad.size:
            value, line = written.iloc[bad[0]], self.frame.index[bad[0]]
            what = f"'{self.path.name}', line {line}: weight in column '{self.labels[column]}'"
            got, do = f"'{value}'" if value else "nothing", "mend the file, or choose another weight column"
            raise GraphError(what, got=got, expected="a finite number", do=do)
        return values

    def where(self, conditions: Mapping[str, str]) -> EdgeTable:
        """Return the rows that hold a value in each of some columns."""
        kept = np.ones(len(self), dtype=bool)
        for column, value in conditions.items():
            rows = (self.frame[column] == value).to_numpy()
            if not rows.any():
                what = f"table '{self.path.name}': no row has '{value}' in column '{self.labels[column]}'"
                got = listing(name or "nothing" for name in self.text(column, filled=False)[0])
                raise GraphError(what, got=got, do="correct `where`, or check that the file is the one meant")
            kept &= rows
        return self.select(kept)

    def select(self, kept: NDArray[np.bool_]) -> EdgeTable:
        """Return the ``kept`` rows."""
        return self if kept.all() else EdgeTable(self.path, self.frame[kept], self.labels)


def read_table(
    path: Path, wanted: Sequence[str] | None, header: bool | None = None, *, quotes: bool = True
) -> EdgeTable:
    """Read some columns of a text file, plain or ``.gz``; a ``GraphError`` says what is wrong with it.

    They are separated by the first of tab, comma and semicolon that is in line 1, else by blanks. ``wanted`` has column
    names of the header, or positions from 0 written as numbers; None stands for all that line 1 names. Line 1 is a
    header where ``header`` says so, or where it is None and a wanted column is no number. Fields may stand in double
    ``quotes``; otherwise a quote is a character like others.
    """
    import pandas as pd

    has_header = header if header is not None else wanted is None or not all(map(str.isdecimal, wanted))
    try:
        text = read_text(path, errors="replace")
        if "\0" in text:  # pandas ends a name there, and other programs do not
            raise _unreadable(path, ValueError(f"a NUL in line {text.count(chr(10), 0, text.index(chr(0))) + 1:,}"))
        first = text[: text.find("\n") + 1 or None].rstrip("\r\n")
        if not first:
            what = f"table '{path.name}' is empty or begins with an empty line"
            raise GraphError(what, expected="a row of column names or data", do="check the file")
        separator = next((mark for mark in ("\t", ",", ";") if mark in first), " ")  # that is, any run of blanks
        fields = first.split() if separator == " " else first.split(separator)
        names = [field.strip().strip('"') for field in fields]
        if len(names) > MOST_COLUMNS:
            do = "keep those of genes and weights; write a matrix of pairs as a table of pairs"
            what, expected = f"table '{path.name}' has too many columns", f"{MOST_COLUMNS:,} or fewer"
            raise GraphError(what, got=f"{len(names):,}", expected=expected, do=do)
        every = {name: i for i, name in enumerate(names)}
        places = every if wanted is None else {column: _place(column, names, has_header, path) for column in wanted}
        with warnings.catch_warnings():
            # pandas only warns when all rows are longer than the first line, and then drops what is too much.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            whole = pd.read_csv(
                io.StringIO(text), sep=separator.replace(" ", r"\s+"), header=None, skiprows=int(has_header),
                names=list(range(len(names))), dtype="category", keep_default_na=False, na_values=[],
                skip_blank_lines=False, index_col=False,
                quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
            )  # fmt: skip
    except (*DAMAGE, pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise _unreadable(path, error) from error
    whole.index = pd.RangeIndex(1 + has_header, len(whole) + 1 + has_header)
    frame = pd.DataFrame({column: _names(whole[place]) for column, place in places.items()})
    # This character stands for bytes that are no UTF-8, which are harmless in columns that are not read.
    undecodable = re.compile("\N{REPLACEMENT CHARACTER}")
    for column in frame:
        for what, sign in (("bytes that are not UTF-8", undecodable), ("control characters", CONTROL)):
            if any(map(sign.search, frame[column].cat.categories)):
                raise _unreadable(path, ValueError(f"{what} in column '{column}'"))
    nothing = (frame == "").all(axis=1)
    others = whole[nothing].astype(object).fillna("").map(str.strip)
    blank = others.index[(others == "").all(axis=1)]
    labels = {column: names[place] if has_header else column for column, place in places.items()}
    return EdgeTable(path, frame.drop(blank), labels)


def _names(written: pd.Series) -> pd.Series:
    import pandas as pd

    stripped = np.array(["", *map(str.strip, written.cat.categories)], dtype=object)
    names, place = np.unique(stripped, return_inverse=True)
    return pd.Series(pd.Categorical.from_codes(place[written.cat.codes + 1], pd.Index(names)), written.index)


def _unreadable(path: Path, error: Exception) -> GraphError:
    got = str(error).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: ")
    what, do = f"'{path.name}' cannot be read to its end", "copy or download the file again"
    expected = "a text file, plain or .gz; if it is a table, with equally many columns in every row"
    return GraphError(what, got=got, expected=expected, do=do)


def _place(column: str, names: list[str], has_header: bool, path: Path) -> int:
    if has_header and names.count(column) > 1:
        raise GraphError(f"table '{path.name}': two columns are called '{column}'", do="name it by its position")
    if has_header and column in names:
        return names.index(column)
    if column.isdecimal() and int(column) < len(names):
        return int(column)
    expected = (listing(names, 20) + ", or " if has_header else "") + f"a number from 0 to {len(names) - 1}"
    do = "name one of these columns" + ("" if has_header else ", or set `header: true` if line 1 names them")
    raise GraphError(f"table '{path.name}' has no column '{column}'", expected=expected, do=do)


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        lines = io.StringIO(read_text(path), newline="")
    except DAMAGE as error:
        raise _unreadable(path, error) from error
    for number, line in enumerate(lines, start=1):
        if CONTROL.search(line):
            what, got = f"'{path.name}', line {number}: a control character", ascii(shorten(line, 80))
            raise GraphError(what, got=got, expected="a text file")
        if line.strip():
            yield number, line.rstrip("\r\n")


def read_list(path: Path) -> dict[int, str]:
    """Read a list of names from a text file, plain or ``.gz``, one a line: line → name; ``#`` begins a comment."""
    lines = {number: line.partition("#")[0].strip() for number, line in _numbered_lines(path)}
    return {number: name for number, name in lines.items() if name}


def read_gene_list(path: Path) -> Vocabulary:
    """Read the genes of a cell graph from a list of names."""
    names = read_list(path)
    for number, name in names.items():
        if len(name.split()) > 1:
            what, do = f"gene list '{path.name}', line {number}: more than one name", "keep only the column of"
            raise GraphError(what, got=f"'{name}'", expected="one name per line", do=f"{do} systematic names")
    if not names:
        raise GraphError(f"gene list '{path.name}' holds no names", expected="one name per line")
    return Vocabulary.of(names.values())


def read_column(path: Path, column: str) -> frozenset[str]:
    """Read the names in a column of a table with a header."""
    names = frozenset(read_table(path, [column], header=True).text(column, filled=False)[0]) - {""}
    if not names:
        raise GraphError(f"'{path.name}': its column '{column}' holds no names", expected="a name in some row")
    return names


def read_aliases(path: Path) -> Vocabulary:
    """Read aliases from a table with a header.

    The column called ``systematic`` or ``orf`` (any case) holds systematic names; whatever the other columns
    hold is an alias of the gene in that row, e.g. strain, common and allele names.
    """
    frame = read_table(path, None).frame
    systematic = [column for column in map(str, frame) if column.lower() in ("systematic", "orf")]
    if len(systematic) != 1 or frame.shape[1] < 2:
        what = f"alias table '{path.name}': which column holds the systematic names?"
        expected = "a header with one column 'systematic' or 'orf' and others"
        raise GraphError(what, got=listing(frame), expected=expected, do="add or rename the header")
    genes = frame.pop(systematic[0])
    pairs = (pair for column in frame for pair in zip(frame[column], genes, strict=True))
    return Vocabulary.of_aliases(_targets((name, gene) for name, gene in pairs if gene and name != gene))


Named = tuple[str, str, Sequence[str]]  # of a gene: its systematic name, its standard name or none, and its aliases


def read_sgd_features(path: Path) -> Vocabulary:
    """Read the open reading frames of ``SGD_features.tab``, with their other names: 16 columns, no header.

    Column 2 is the feature type (`ORF` here, with every qualifier: verified, uncharacterized, dubious), column 4 the
    systematic name, column 5 the standard name, column 6 aliases separated by ``|``. Rows of parts of features (CDS,
    introns) have no name of their own. (Columns as SGD's README and yeastgenome/SGDBackend-Nex2,
    generate_sgd_features.py, give them.)
    """
    frame = read_table(path, ["1", "3", "4", "5", "15"], header=False, quotes=False).frame
    frame = frame[(frame["1"] == "ORF") & (frame["3"] != "")]
    return _gene_set([(*names, of.split("|")) for *names, of in frame[["3", "4", "5"]].itertuples(index=False)], path)


def read_gff(path: Path) -> Vocabulary:
    """Read the features of type ``gene`` of SGD's GFF3: ``ID`` is the systematic, ``gene`` the standard name.

    SGD writes protein-coding genes as ``gene``; those of RNAs, of transposons and pseudogenes have types of their own.
    ``Alias`` lists the standard name and others. Reading ends where the sequences begin.
    """
    genes: list[Named] = []
    for number, line in _numbered_lines(path):
        if line.startswith("##FASTA"):
            break
        fields = line.split("\t")
        if line.startswith("#") or len(fields) != 9 or fields[2] != "gene":
            continue
        attributes = dict(pair.partition("=")[::2] for pair in fields[8].split(";"))
        if not attributes.get("ID"):
            raise GraphError(f"'{path.name}', line {number}: a gene without ID", expected="GFF3 as SGD writes it")
        aliases = [unquote(alias) for alias in attributes.get("Alias", "").split(",")]
        genes.append((unquote(attributes["ID"]), unquote(attributes.get("gene", "")), aliases))
    return _gene_set(genes, path)


def read_genome_table(path: Path) -> Vocabulary:
    """Read a protein table (``.ptt``) of NCBI as comma-separated text: ``Gene`` is a name of the tag ``Synonym``."""
    frame = read_table(path, ["Synonym", "Gene"], header=True).frame
    return _gene_set([(gene, name, ()) for gene, name in frame.itertuples(index=False) if gene and name], path)


def _gene_set(genes: list[Named], path: Path) -> Vocabulary:
    """Return genes with their standard names, their protein forms (``Gcn4p``) and aliases.

    A standard name stands for its gene, even where others have it among their aliases.
    """
    if not genes:
        expected = "protein-coding genes as SGD lists them"
        raise GraphError(f"'{path.name}' holds no genes", expected=expected, do="check the file")
    forms = [(n, gene) for gene, name, _ in genes for n in (name, name.capitalize(), f"{name.capitalize()}p") if name]
    others = _targets((name, gene) for gene, _, aliases in genes for name in aliases)
    shown = {gene: name for gene, name, _ in genes if name}
    return Vocabulary(tuple(sorted({gene for gene, *_ in genes})), {**others, **_targets(forms)}, shown)


def _targets(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    targets: dict[str, set[str]] = {}
    for name, gene in pairs:
        if name:
            targets.setdefault(name, set()).add(gene)
    return {name: tuple(sorted(genes)) for name, genes in targets.items()}


VECTORS = (".csv", ".csv.gz", ".parquet", ".npz")  # ends of files of vectors


def read_vectors(path: Path, vocabulary: Vocabulary, key: str) -> NDArray[np.float64]:
    """Read a vector for each of some nodes, [N, D].

    Every column has mean 0 and standard deviation 1 over the nodes that the file has; others get zeros. Names that the
    vocabulary lacks are left out.

    The file is CSV or Parquet with a name in the first column and numbers in the others. Or it is an ``.npz`` file
    with the arrays ``genes`` [G] of names and ``vectors`` [G, D].
    """

    def refuse(fault: str, got: object, expected: str | None = None) -> NoReturn:
        raise GraphError(f"`{key}`: '{path.name}' {fault}", got=got, expected=expected)

    if not path.name.endswith(VECTORS):
        raise GraphError(f"`{key}`: unknown form of file", got=path.name, expected=", ".join(VECTORS))
    try:
        names, values = _read_arrays(path)
        vectors = np.asarray(values, dtype=np.float64)
    except (*DAMAGE, UnreadableError, ValueError, TypeError, KeyError, Warning) as error:
        got = (str(error).strip() or type(error).__name__).splitlines()[0]
        refuse("cannot be read", got, "a name and equally many numbers in every row; in npz `genes` and `vectors`")
    if vectors.ndim != 2 or vectors.shape[0] != len(names) or not vectors.shape[1]:
        got = f"{len(names):,} names and numbers of shape {list(vectors.shape)}"
        refuse("has no vector for each name", got, "a row of one or more numbers for each name")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        refuse("has names twice", listing(sorted(twice)))
    if rows := np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
        refuse("has numbers that are not finite", listing(sorted(names[row] for row in rows)))
    index = vocabulary.indices(names)
    if not (index >= 0).any():
        refuse_strangers(f"`{key}`: '{path.name}' names no node", names, vocabulary)
    found = np.zeros((len(vocabulary), vectors.shape[1]))
    found[index[index >= 0]] = standardised(vectors[index >= 0])
    return found


def _read_arrays(path: Path) -> tuple[list[str], NDArray[Any]]:
    if path.suffix == ".npz":
        arrays = read_npz(path)
        return [str(name) for name in arrays["genes"].ravel()], arrays["vectors"]
    import pandas as pd

    if path.suffix == ".parquet":
        import_optional("pyarrow", "Parquet files", "pip install 'dglcell[parquet]'")
        frame = pd.read_parquet(path)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # as in `read_table`
            # A name is text, also where it looks like a number or like nothing: 0012, 7E3, NA.
            frame = pd.read_csv(io.StringIO(read_text(path)), index_col=False, converters={0: str.strip})
    return [str(name) for name in frame.iloc[:, 0]], frame.iloc[:, 1:].to_numpy()


def refuse_strangers(what: str, names: Sequence[str], known: Vocabulary) -> NoReturn:
    """Refuse a file that names nothing of the cell graph."""
    got = f"{len(names):,} names, e.g. {names[0] if names else 'none'}"
    raise GraphError(f"{what} of the cell graph", got=got, expected=f"names such as {known.names[0]}")


def standardised(values_NF: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every column with mean 0 and standard deviation 1; a constant column becomes 0."""
    sd = values_NF.std(axis=0) * (np.ptp(values_NF, axis=0) > 0)  # by rounding, that of a constant may be above 0
    out: NDArray[np.float64] = (values_NF - values_NF.mean(axis=0)) / np.where(sd > 0, sd, np.inf)
    return out
