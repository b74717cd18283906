"""What a process that works for another one does first, and how its errors travel."""

from __future__ import annotations

import multiprocessing
import os
import signal
from threading import Thread


def become_worker() -> None:
    """Makes this process a worker: it ends with the process that started it, and leaves Ctrl-C to that process.

    A forked worker inherits how its parent handles signals, which is not for it: SIGTERM ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Whatever else the worker is at: one that hangs would keep what it inherited, locks among it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
