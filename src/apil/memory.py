"""How much memory there is, and whether something did not fit into it."""

from __future__ import annotations

import os
import resource
from pathlib import Path


def memory_left() -> int:
    """Bytes that this process may take: those of the machine, or what a limit of the system leaves of them."""
    page = os.sysconf("SC_PAGE_SIZE")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    taken = Path("/proc/self/statm")
    all_of_it = page * os.sysconf("SC_PHYS_PAGES")
    if limit == resource.RLIM_INFINITY or not taken.exists():
        return all_of_it
    return min(all_of_it, limit - page * int(taken.read_text().split()[0]))


def lacks_memory(error: BaseException) -> bool:
    """Whether something did not fit into memory, as Python, torch or NumPy say it."""
    said = ("alloc", "Storage size", "Maximum allowed dimension", "array is too big")
    return isinstance(error, MemoryError) or any(word in str(error) for word in said)
