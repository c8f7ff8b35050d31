"""The list of all experiments: grouped, with results, baselines, time and data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dglcell.config.experiment import Config
from dglcell.config.published import needs
from dglcell.published.file import download_size
from site_extension.markdown import table
from site_extension.results import Comparison, Record, mean, memory, minutes

GROUPS = {
    "": "Begin here",
    "101-collins2007": "Collins 2007: S-scores of yeast pairs",
    "102-costanzo2016": "Costanzo 2016: epsilon of yeast pairs",
    "103-tong2004": "Tong 2004: which yeast pairs interact",
    "104-kuzmin2020-pilot": "Kuzmin 2020, pilot: tau of yeast triples",
    "105-yeast-gem": "yeast-GEM: computed growth of yeast",
    "106-ecoli-core": "E. coli core: from pairs to triples",
    "107-ijo1366": "iJO1366: from pairs to triples of *E. coli*",
    "108-imm904": "iMM904: from pairs to triples of yeast",
    "109-several-screens": "Several screens: pairs of a screen left out",
    "110-mathis2020-crispri": "Mathis 2021: titrated CRISPRi of *E. coli*",
    "111-baba2006-keio": "Baba 2006: growth of the Keio deletions of *E. coli*",
    "112-faure2023-media": "Faure 2023: growth of *E. coli* in media",
    "113-fba-activities-media": "E. coli core and iMM904: knock-downs in media",
    "114-smf-alleles": "Single mutants of yeast: deletions and alleles",
    "117-acton2017-dropouts": "Acton 2017: deletions of yeast in dropout media",
    "118-yeast-carbon-media": "Steinmetz 2002, Qian 2012: deletions of yeast in carbon sources",
    "119-cross-simulator": "yeast-GEM from iMM904: growth by another model",
    "120-degraded-imm904": "iMM904 from a degraded copy of it",
    "005-kuzmin2018-tmi": "Original experiments on Kuzmin 2018",
    "006-kuzmin-tmi": "Original experiments on Kuzmin 2018 and 2020",
}
"""Folder of ``conf`` → heading, in the order of the page."""

HEAD = """\
# Reproduce an experiment

One page per experiment file in `conf/`, made from that file and from committed results. A page without measured
results says so in its first line. All commands are given from the root of a clone.

- **Test** is the Pearson correlation on the test part (average precision for Tong 2004), and **baseline** that of the
  strongest simple model on the same splits. [Accuracy](../../accuracy.md) has the differences and their intervals.
- **Minutes** are those of training alone, the median over seeds, on one or two CPU cores that were shared with other
  work. **MB** is the peak of memory. Both are empty where nothing was recorded.
- **Download** is what `dglcell data fetch --all FILE` downloads, as far as sizes are known.

[Which model should I use?](../../guides/models.md#which-model-should-i-use) says which of them is a good start.
"""
COLUMNS = ("experiment", "what", "split", "test", "baseline", "minutes", "MB", "download")


@dataclass(frozen=True)
class Entry:
    """One experiment.

    Attributes:
        file: relative to ``conf``.
        page: name of its page.
        config: the experiment.
        record: what is committed of it.
    """

    file: Path
    page: str
    config: Config
    record: Record


def index(entries: list[Entry]) -> str:
    """The whole page."""
    folders = {str(entry.file.parent).removeprefix(".") for entry in entries}
    assert folders <= set(GROUPS), f"folders without a heading: {folders - set(GROUPS)}"
    sections = [HEAD]
    for folder, title in GROUPS.items():
        rows = [_row(entry) for entry in entries if str(entry.file.parent).removeprefix(".") == folder]
        sections.append(f"## {title}\n\n{table(COLUMNS, rows, 'lllrrrrr')}")
    names = "\n".join(entry.page for entry in entries)
    return "\n".join([*sections, f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"])


def _row(entry: Entry) -> tuple[str, ...]:
    found = Comparison.of(entry.record)
    return (
        f"[`{entry.file.stem}`]({entry.page}.md)",
        entry.config.experiment.description,
        entry.config.split.kind,
        mean(found.own) if found else "",
        f"{mean(found.theirs)}, {found.baseline}" if found else "",
        minutes(entry.record.runs),
        memory(entry.record.runs),
        _download(entry.config),
    )


def _download(config: Config) -> str:
    """Megabytes; what has no known size is said."""
    sizes = [download_size(file.downloads) for file in needs(config)]
    if not sizes:
        return "nothing"
    known = f"{sum(sizes) / 1e6:,.1f} MB"
    return known if all(sizes) else f"more than {known}" if any(sizes) else "not stated"
