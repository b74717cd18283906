"""What can be seen and read on R2R, as tables that the model looks up by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

LEADING = 4
"""Features of an observation before the flags of the exits: instruction, viewpoint, heading, last action."""


@dataclass(frozen=True)
class Readings:
    """The words of instructions as a language model understands them in their sentences: R rows of B numbers, one for
    each token of an instruction after the other; A episodes in the data."""

    rows: Annotated[Tensor, "byte R B"]
    """In units of `scale`."""
    scale: Annotated[Tensor, "float B"]
    """From 0 up; 0 for a number that no row has."""
    start: Annotated[Tensor, "long A"]
    """The first row of each instruction; -1 where it was not read."""
    mirrored: Annotated[Tensor, "long A"]
    """The same of the instruction with left for right; -1 where that was not read."""


@dataclass(frozen=True)
class Panoramas:
    """What can be seen at each place and read in each episode, for models that look it up by index: V places, D exits
    at most, 8 directions as in `World`. Nothing here tells where an exit leads, where the goal is, or how far."""

    tokens: Tensor
    """[episodes of the data, L] long: the words of each instruction, 0 after the end."""
    words: int
    """W, the size of the vocabulary."""
    mirrored: Tensor
    """[W] long: the word that each becomes in a mirror, left for right; all others stay."""
    read: Readings | None
    """What a language model makes of the instructions; None where none has read them."""
    glove: Tensor
    """[W, 300] float: word vectors, zero where there is none."""
    captions: Tensor | None
    """[V, 8, C] int16: words of the captions, 0 is padding."""
    objects: Tensor | None
    """[V, 8, O] int16: words of the objects, 0 is padding."""
    rooms: Tensor | None
    """[V] long: the kind of room."""
    room_names: int
    """Kinds of rooms."""
    images: Tensor | None
    """[V, 8, F] half: image features."""
    exits: Tensor
    """[V, D] bool"""
    heading: Tensor
    """[V, D] float: of each exit, radians clockwise from +y."""
    elevation: Tensor
    """[V, D] float: radians above the horizon."""
    length: Tensor
    """[V, D] float: metres."""
