"""What happens to the stacks of a study, as records that travel, and where they wait. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Event:
    """What has happened to a stack."""

    job: int
    """Which stack, by the number it was handed in with."""
    kind: Literal["began", "did", "ended", "failed", "stopped", "lost"]
    """`lost` says that its worker is gone and the engine starts it again, from its last checkpoints."""
    units: int = 0
    """Of work, done since the last event."""
    why: str = ""
    """Of a failure or a loss, in one line."""
    log: str = ""
    """The same with all that is known."""


@dataclass(frozen=True)
class Change:
    """A file of a run that is new, longer, other than before, or gone."""

    folder: str
    """Of the run."""
    name: str
    data: bytes | None
    """What follows the first `offset` bytes, which are as before; None where the file is gone."""
    offset: int = 0


@dataclass(frozen=True)
class Post:
    """What a worker sends on its way."""

    job: int
    attempt: int
    event: Event | None = None
    changes: Sequence[Change] = ()


class Mailbox:
    """Where workers leave what the driver has not taken yet, and learn that they shall stop."""

    def __init__(self) -> None:
        self._posts: list[Post] = []
        self._stop = False

    def post(self, post: Post) -> bool:
        """Leaves a post; returns whether to stop."""
        self._posts.append(post)
        return self._stop

    def take(self) -> list[Post]:
        """What was left since the last call."""
        taken, self._posts = self._posts, []
        return taken

    def stop(self) -> None:
        self._stop = True
