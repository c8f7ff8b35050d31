"""The command line, verb by verb, as its parser has it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from dglcell.cli import make_parser
from site_extension.markdown import block, code, table

HEAD = """\
# Command line

This page shows the same text as `--help` of each command. The exit status of a command is 0 if it has succeeded. It
is 2 after an error that you can fix, and 130 or 143 if the command was stopped.

"""
WIDTH = 96


def pages(root: Path) -> dict[str, str]:
    """One page with a section for each verb."""
    sections = [_section(prog, text, parser) for prog, text, parser in verbs(make_parser())]
    return {"commands.md": HEAD + "\n".join(sections)}


def verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """What is typed, one line about it, and its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                groups = list(verbs(below))
                yield from groups or [(below.prog, texts[name], below)]


def _section(prog: str, text: str, parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(prog, width=WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    rows = [
        (", ".join(code(name) for name in action.option_strings) or code(_name(action)), action.help or "")
        for action in parser._actions
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings
    ]
    parts = [f"## `{prog}`", "", f"{text[:1].upper()}{text[1:]}.", "", block("text", formatter.format_help())]
    if rows:
        parts.append(table(("argument", "meaning"), rows))
    if parser.epilog:
        parts.append(block("text", parser.epilog))
    return "\n".join(parts)


def _name(action: argparse.Action) -> str:
    metavar = action.metavar or action.dest
    return metavar if isinstance(metavar, str) else " ".join(metavar)
