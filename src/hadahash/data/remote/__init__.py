"""Images that are not files of a local folder: object stores, archives, and parquet files.

`address` says which sources these are, and opens the file system of fsspec behind each. `listing`
finds the images of an address, their names and their labels; `shards` those of .tar and .parquet
files. A `Place` is where one image is: it reads the bytes, with repetitions and a cache on disk.
"""

from __future__ import annotations

from .address import is_address, is_stored
from .images import RemoteImages, find_places, open_stored, read_addresses, read_stored
from .listing import Found, list_stored
from .place import Place

__all__ = [
    "Found",
    "Place",
    "RemoteImages",
    "find_places",
    "is_address",
    "is_stored",
    "list_stored",
    "open_stored",
    "read_addresses",
    "read_stored",
]
