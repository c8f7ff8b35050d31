"""Download files over the network, from secure addresses, with errors that say what to do instead."""

from __future__ import annotations

import logging
import sys
import time
from functools import partial as partial_of
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from dglcell.errors import DataError

if TYPE_CHECKING:
    from requests import Response

log = logging.getLogger(__name__)

CONNECT_TIMEOUT, READ_TIMEOUT = 20.0, 60.0
CHUNK_BYTES = 2**16
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")

WAITS = (1.0, 5.0)
"""A download that broke off is tried again after so many seconds."""


def check_address(url: str, hashed: bool) -> None:
    """Refuse an address from which anyone on the way could send another file, and text that is not an address.

    Args:
        url: https, or http.
        hashed: take plain http from other machines, too, because a hash shows whether the file was changed on the way.

    Raises:
        DataError: it is something else.
    """
    address = urlsplit(url)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise DataError("this is no address to download from", got=url, expected="https://… or http://…")
    if address.scheme == "http" and not hashed and address.hostname not in THIS_MACHINE:
        raise DataError(
            f"{url} is not secure",
            got="plain http and no hash to compare with: anyone on the way could send another file",
            expected="https, or a declared hash",
            do="download the file yourself, look at it, and put it into the raw folder",
        )


def download(url: str, partial: Path, target: Path, name: str, *, hashed: bool) -> None:
    """Download the content of an address to ``partial``. A transfer that breaks off is begun again, a few times.

    Args:
        url: the address.
        partial: where the bytes go. (A temporary file of pooch's own would stay there after a kill.)
        target: where the file is going to be, for messages.
        name: the file's name, for messages.
        hashed: take plain http, too, as in `check_address`.

    Raises:
        DataError: the address is not secure, or does not give a file.
    """
    import pooch
    import requests

    check_address(url, hashed)
    log.info("downloading %s from %s", name, url)
    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=CHUNK_BYTES,
        timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
        # As the file lies on the server: compressing it on the way would change size and hash of what arrives.
        headers={"Accept-Encoding": "identity", "User-Agent": f"dglcell (pooch {pooch.__version__})"},
        hooks={"response": partial_of(_check_redirect, hashed)},
    )
    for wait in (*WAITS, None):
        try:
            return fetch(url, str(partial), None)
        except requests.RequestException as error:
            if wait is not None and isinstance(error, requests.exceptions.ChunkedEncodingError):
                log.warning("%s broke off; it is tried again", url)
                time.sleep(wait)
                continue
            raise DataError(
                f"'{name}' cannot be downloaded",
                got=str(error) or type(error).__name__,
                expected=f"a file at {url}",
                do=f"on a machine with internet access, download that address and put the file at '{target}'",
            ) from error


def _check_redirect(hashed: bool, response: Response, **_: object) -> None:
    """Check an address to which another one redirects."""
    if response.is_redirect:
        check_address(urljoin(response.url, response.headers["Location"]), hashed)
