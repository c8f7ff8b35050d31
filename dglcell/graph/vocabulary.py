"""Hold names of nodes and their other names, and tell what is meant by names that are written differently."""

from __future__ import annotations

import difflib
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, listing

log = logging.getLogger("dglcell")

REFUSE = "refuse"
UNKNOWN_POLICIES = (REFUSE, "drop")  # what becomes of names that are not among the genes
LOOKED_AT = 200  # unknown names that are searched for what they have in common
SEPARATORS = ",+/|&:_ -"  # some tables write one between two genes of a strain, instead of the semicolon

NUMBER, DIGIT = re.compile(r"[0-9]+"), re.compile(r"[0-9]")


def form_of(name: str) -> str:
    """Return the name with 0 in place of every digit, a form that many names have in common."""
    return DIGIT.sub("0", spelling(name))


MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DATE = re.compile(
    r"(?P<day>\d{1,2})[-/. ](?P<month>[A-Z]{3})[A-Z]*([-/. ]\d+)?|(?P<month_>[A-Z]{3})[A-Z]*[-/. ](?P<day_>\d{1,2})"
    r"|\d{4}-(?P<number>\d\d)-(?P<day__>\d\d)([T ]00:00:00)?",
    re.IGNORECASE,
)


def names_of_date(text: str) -> tuple[str, ...]:
    """Return names of which a spreadsheet makes this date, e.g. MAR1, MARC1 and MARCH1 of ``1-Mar``; none of others."""
    if not (found := DATE.fullmatch(text.strip())):
        return ()
    number = int(found["number"] or 0)
    month = MONTHS[number - 1] if 0 < number < 13 else (found["month"] or found["month_"] or "").upper()
    day = int(found["day"] or found["day_"] or found["day__"])
    longer = {"MAR": ("MARC", "MARCH"), "SEP": ("SEPT", "SEPTIN")}.get(month, ())
    return tuple(f"{start}{day}" for start in (month, *longer)) if month in MONTHS else ()


def spelling(name: str) -> str:
    """Return the name without blanks and in capitals, by which differently written names are compared."""
    return "".join(name.split()).upper()


@dataclass(frozen=True)
class Vocabulary:
    """Hold the names of the nodes of one type, and their other names; the index of a name is its position.

    Other names are common names and identifiers, perhaps with prefixes. One of several nodes is ambiguous, and means
    none. Two vocabularies with the same names are equal whatever their other names are.
    """

    names: tuple[str, ...] = ()  #: sorted names without duplicates
    #: other name → names
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    shown: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  #: name → name to show beside it

    @classmethod
    def of(cls, names: Iterable[str]) -> Vocabulary:
        """Make the vocabulary of the distinct ``names``, sorted."""
        return cls(tuple(sorted(set(names))))

    @classmethod
    def of_aliases(cls, aliases: Mapping[str, tuple[str, ...]], shown: Mapping[str, str] | None = None) -> Vocabulary:
        """Make the vocabulary of all names that aliases lead to."""
        return cls(tuple(sorted({name for names in aliases.values() for name in names})), aliases, shown or {})

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def sha256(self) -> str:
        """Return a hash of the names in order; two vocabularies with this hash give every name the same index."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()

    def examples(self, number: int = 5) -> str:
        """Return a few names from all over the vocabulary, since the first ones are often unlike the others."""
        return ", ".join(self.names[:: max(1, -(-len(self.names) // number))])

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def index(self, name: str) -> int:
        """Return the index of ``name``; a ``GraphError`` suggests close names."""
        if name not in self._index:
            what, expected = f"unknown name '{name}'{self.suggestion(name)}", f"one of the {len(self):,} names of"
            do = "use systematic names; for genes, `dglcell.load_cell(…).genes.names` lists them in Python"
            raise GraphError(what, expected=f"{expected} the vocabulary", do=do)
        return self._index[name]

    def indices(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the indices of ``names``; −1 where a name is unknown."""
        get = self._index.get
        return np.fromiter((get(name, -1) for name in names), dtype=np.int64, count=len(names))

    # Other names.

    def joined(self, other: Vocabulary) -> Vocabulary:
        """Join names with those of another vocabulary; other names of this one are kept where both have one."""
        names = tuple(sorted({*self.names, *other.names}))
        return Vocabulary(names, {**other.aliases, **self.aliases}, {**other.shown, **self.shown})

    def named_by(self, other: Vocabulary) -> Vocabulary:
        """Return these names with the other names that another vocabulary has for them."""
        among = {n: tuple(t for t in of if t in self) for n, of in other.aliases.items() if n not in self}
        aliases = {name: targets for name, targets in among.items() if targets}
        return Vocabulary(self.names, aliases, {name: shown for name, shown in other.shown.items() if name in self})

    def standard(self, name: str) -> str:
        """Return the standard name beside a name of the vocabulary, e.g. GCN4; empty where there is none."""
        return self.shown.get(name, "")

    def find(self, name: str, *, spelled: bool = True) -> str:
        """Return the name in the vocabulary that ``name`` means; ``name`` itself where it means none.

        If ``spelled``, it may differ in case and blanks, as in tables that people write.
        """
        return name if name in self._index else self.resolve([name], spelled=spelled)[0][0]

    def meant(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the indices of the names that ``names`` mean; −1 where one means none."""
        return self.indices([self.find(name) for name in names])

    def resolve(
        self, names: Sequence[str], known: Vocabulary | None = None, *, spelled: bool = False
    ) -> tuple[list[str], list[str]]:
        """Replace other names by names, and return the distinct ambiguous ones, too, which stay as they are.

        A name of ``known``, which is this vocabulary where None, stands for itself, whatever the aliases say. If
        ``spelled``, a name that is neither known nor an alias may differ in case and blanks from the one that is meant.
        """
        known = self if known is None else known
        resolved, ambiguous = [], set()
        for name in names:
            targets = () if name in known else self.aliases.get(name, ())
            if len(targets) > 1:
                ambiguous.add(name)
            elif spelled and not targets and name not in known:
                wanted = spelling(name)
                targets = known.spelled(wanted) or self._spelled.get(wanted, ())
            resolved.append(targets[0] if len(targets) == 1 else name)
        return resolved, sorted(ambiguous)

    def spelled(self, wanted: str) -> tuple[str, ...]:
        """Return the names with this spelling; see `spelling`."""
        return self._own_spelling.get(wanted, ())

    @cached_property
    def _own_spelling(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in self.names:
            found[spelling(name)] = (*found.get(spelling(name), ()), name)
        return found

    @cached_property
    def _spelled(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for alias, names in self.aliases.items():
            found.setdefault(spelling(alias), set()).update(names)
        # A standard or systematic name always means its own gene, even where another gene has it as an alias.
        found |= {spelling(shown): {name} for name, shown in self.shown.items()}
        return {name: tuple(names) for name, names in found.items()} | self._own_spelling

    # Suggestions.

    @cached_property
    def forms(self) -> frozenset[str]:
        """Return the forms of the names; see `form_of`."""
        return frozenset(map(form_of, self._suggested))

    @cached_property
    def _suggested(self) -> dict[str, str]:
        names = {alias: found[0] for alias, found in self.aliases.items() if found[0] in self}
        other = {spelling(alias): f"{self.standard(name) or alias} ({name})" for alias, name in names.items()}
        return other | {spelling(name): name for name in self.names}

    def suggestion(self, name: str) -> str:
        """Return close names, as the end of a message; empty where nothing is close.

        Nothing is suggested for a name that has the form of others, as b0002 has, because it may be right and merely be
        missing from the vocabulary. A name with another number is not suggested either.
        """
        wanted, known = spelling(name), self._suggested
        if wanted in known:
            return f" (close: {known[wanted]})"
        if dates := names_of_date(name):
            meant = [known[one] for one in dates if one in known] or dates
            return f" (a spreadsheet made a date of {' or '.join(meant)})"
        if sign := self.separator_in([name]):
            return f" (both genes are known: write `;` in place of '{sign}')"
        if form_of(wanted) in self.forms:
            return ""

        def numbers(name: str) -> list[str]:
            return [number.lstrip("0") for number in NUMBER.findall(name)]

        form = NUMBER.sub("0", wanted)
        close = dict.fromkeys(
            known[found]
            for found in difflib.get_close_matches(wanted, known, n=10, cutoff=0.7)
            if NUMBER.sub("0", found) != form or numbers(found) == numbers(wanted)
        )
        return f" (close: {', '.join([*close][:3])})" if close else ""

    def separator_in(self, names: Sequence[str]) -> str:
        """Return the sign at which each of some unknown names falls apart into known ones; empty where none does."""
        some = names[:LOOKED_AT]
        for sign in SEPARATORS if some else "":
            parts = [[part.strip() for part in name.split(sign)] for name in some]
            if all(len(of) > 1 and all(self.find(part) in self for part in of) for of in parts):
                return sign
        return ""


FEW = 0.1  # two parts of which the smaller one shares less with the other hardly meet


def way_out(names: Sequence[str], genes: Vocabulary, prefix_key: str = "") -> str:
    """Return what to do about names that are no genes, where they show what is wrong; empty where they do not.

    ``prefix_key`` is the key that takes the text before names away, if there is one.
    """
    if sign := genes.separator_in(names):
        return f"both genes of '{names[0]}' are known; genes are separated by `;`, so write it in place of '{sign}'"
    first = names[0] if names else ""
    for place in (place for place, letter in enumerate(first) if not letter.isalnum()):
        before, behind = first[: place + 1], first[place:]
        if all(one.startswith(before) and genes.find(one[len(before) :]) in genes for one in names[:LOOKED_AT]):
            do = f'set `{prefix_key}: "{before}"`' if prefix_key else "write the names without it"
            return f"every name begins with '{before}': {do}"
        if all(one.endswith(behind) and genes.find(one[: -len(behind)]) in genes for one in names[:LOOKED_AT]):
            return f"every name ends with '{behind}': write the names without it"
    return ""


def warn_of_strangers(where: str, names: Sequence[str], genes: Vocabulary, prefix_key: str = "") -> None:
    """Warn where hardly any name of one part is a gene of the other parts, so that it connects nothing of theirs."""
    strange = [name for name in names if name not in genes]
    met = len(names) - len(strange)
    if met >= FEW * min(len(names), len(genes)):
        return
    do = way_out(strange, genes, prefix_key) or "give other names of genes in `cell.aliases`, or leave the network out"
    how = f"{met:,}" if met else "none"
    what = f"{how} of its {len(names):,} names are genes of the model or of other networks"
    log.warning("%s: %s (%s; those are called %s): %s", where, what, listing(strange, 3), genes.examples(3), do)


def refuse_names(
    unknown: Sequence[str], total: int, genes: Vocabulary, *, where: str, key: str, ambiguous: Sequence[str] = ()
) -> None:
    """Refuse names in ``where`` that the vocabulary does not have, as the user did not choose to drop their rows."""
    kinds = {"unknown": unknown, "ambiguous": ambiguous}
    if any(kinds.values()):
        got = "; ".join(f"{len(names):,} {kind} ({listing(names)})" for kind, names in kinds.items() if names)
        do = f"mend the names, give an alias table, or set `{key}: drop` to leave these rows out"
        what, do = f"{where}: names that the gene vocabulary does not have", way_out(unknown, genes) or do
        raise GraphError(what, got=got, expected=f"all {total:,} names known", do=do)
