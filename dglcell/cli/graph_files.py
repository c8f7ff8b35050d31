"""``dglcell graph list`` and ``dglcell graph fetch``: the catalogue of networks, and its files."""

from __future__ import annotations

import argparse

from dglcell.cli.arguments import load
from dglcell.errors import ConfigError

FETCH_HELP = "download the networks, gene set and metabolic model that an experiment's cell graph needs"
FETCH_EPILOG = """\
Files of the catalogue go to the raw folder (--raw, paths.raw or $DGLCELL_RAW); what is there is checked and kept. A
file whose publisher states no hash is trusted when it is first fetched, and has to stay the same afterwards. With
--addresses nothing is downloaded: take the printed addresses to a machine that has internet access."""


def graph_list(options: argparse.Namespace) -> None:
    """``dglcell graph list``."""
    from dglcell.graph.sources_report import format_catalogue

    print(format_catalogue(options.raw), end="")


def graph_fetch(options: argparse.Namespace) -> None:
    """``dglcell graph fetch``."""
    from dglcell.files import raw_folder
    from dglcell.graph.fetch import cell_files, fetch_file
    from dglcell.graph.sources_report import format_addresses, format_fetched

    config = load(options)
    files = cell_files(config.cell)
    if not files:
        print(f"{options.config}: the cell graph needs no file of the catalogue")
    elif options.addresses:
        print(format_addresses(files))
    else:
        folder = raw_folder(config.paths.raw)
        if folder is None:
            raise ConfigError(
                "where should the files go?",
                expected="a raw folder",
                do="pass `--raw DIR`, set `paths.raw`, or set DGLCELL_RAW",
            )
        for file in files:
            print(format_fetched(fetch_file(file, folder)), flush=True)
