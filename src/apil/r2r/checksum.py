"""The checksum of compiled tables: noted in their file and by every run on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "tables"
"""Of the checksum in what a header says."""


def tables_checksum(about: Mapping[str, Any], tables: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256, in hex, over what the header says, except the checksum, and every table: name, type, shape, bytes."""
    said = {name: value for name, value in about.items() if name != NAME}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, table in sorted(tables.items()):
        digest.update(f"\n{name} {table.dtype.str} {list(table.shape)}\n".encode())
        digest.update(np.ascontiguousarray(table).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
