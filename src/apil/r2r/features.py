"""What is to be seen from a viewpoint, as word ids by direction; rooms; word vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apil.r2r.layout import DIRECTIONS, Raw, Sight, Tell
from apil.r2r.text import content_words, tokenize

CAPTION_WORDS = 24
"""C: words kept of the captions of a direction."""
OBJECT_WORDS = 12
"""O: words kept of the objects of a direction."""
GLOVE_SIZE = 300
UNKNOWN_ROOM = "unknown"


def instruction_counts(raw: Raw) -> Counter[str]:
    """How often each token occurs in train instructions."""
    texts = (text for annotation in raw.splits["train"] for text in annotation.instructions)
    return Counter(token for text in texts for token in tokenize(text))


@dataclass(frozen=True)
class Seen:
    """The words of one direction of a viewpoint."""

    captions: list[str]
    """Distinct content words."""
    objects: list[tuple[str, float]]
    """Distinct words of objects with their metres, NaN unknown."""


SeenWords = dict[str, list[list[Seen]]]
"""By scan; for each viewpoint, 8 directions."""


def seen_words(raw: Raw, tell: Tell) -> SeenWords:
    """The words of everything that can be seen."""
    words: SeenWords = {}
    for scan, sights in raw.sights.items():
        tell("captions and objects", len(words), len(raw.sights))
        words[scan] = [
            [Seen(caption_words(sight, direction), object_words(sight, direction)) for direction in range(DIRECTIONS)]
            for sight in sights
        ]
    return words


def sight_counts(raw: Raw, seen: SeenWords) -> Counter[str]:
    """How often each word occurs as a caption, object or room word of a direction of a viewpoint of a train scan."""
    counts: Counter[str] = Counter()
    for scan in sorted({annotation.scan for annotation in raw.splits["train"]}):
        for directions in seen[scan]:
            for direction in directions:
                counts.update(direction.captions)
                counts.update(word for word, _ in direction.objects)
        for letter in raw.rooms.get(scan, ()):
            counts.update(content_words([raw.room_names[letter]]))
    return counts


def caption_words(sight: Sight, direction: int) -> list[str]:
    """The distinct content words of a direction: of the middle, down and top captions, then of the summary."""
    rows = sight.captions[direction] if sight.captions else {}
    texts = [rows.get(row, "") for row in ("middle", "down", "top")]
    return content_words([*texts, *sight.summaries[direction : direction + 1]])


def object_words(sight: Sight, direction: int) -> list[tuple[str, float]]:
    """The distinct words of a direction's objects with their metres (NaN: unknown): the nearest first, then those of
    unknown distance, the largest first. Of a name the last word comes first: it says what the thing is.
    """
    nearby = sight.nearby[direction] if sight.nearby else {}
    boxes = sight.boxes[direction] if sight.boxes else {}
    near = sorted(nearby.items(), key=lambda item: (item[1], item[0]))
    large = sorted(boxes, key=lambda name: (-boxes[name], name))
    words: dict[str, float] = {}
    for name, metres in [*near, *((name, float("nan")) for name in large)]:
        parts = content_words([name])
        for word in [*parts[-1:], *parts[:-1]]:
            words.setdefault(word, metres)
    return list(words.items())


def sight_tables(seen: SeenWords, index: dict[str, int]) -> dict[str, NDArray[np.generic]]:
    """captions [V, 8, C] int16; objects [V, 8, O] int16; object_distance [V, 8, O] float16 metres, NaN unknown.

    Words outside the vocabulary are left out; 0 is padding.
    """
    viewpoints = [directions for scan in seen.values() for directions in scan]
    captions = np.zeros((len(viewpoints), DIRECTIONS, CAPTION_WORDS), dtype=np.int16)
    objects = np.zeros((len(viewpoints), DIRECTIONS, OBJECT_WORDS), dtype=np.int16)
    distance = np.full((len(viewpoints), DIRECTIONS, OBJECT_WORDS), np.nan, dtype=np.float16)
    for at, directions in enumerate(viewpoints):
        for k, direction in enumerate(directions):
            known = [index[word] for word in direction.captions if word in index][:CAPTION_WORDS]
            captions[at, k, : len(known)] = known
            things = [(index[word], metres) for word, metres in direction.objects if word in index][:OBJECT_WORDS]
            objects[at, k, : len(things)] = [word for word, _ in things]
            distance[at, k, : len(things)] = [metres for _, metres in things]
    return {"captions": captions, "objects": objects, "object_distance": distance}


def room_table(raw: Raw) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """[V] index into the names, and the names; 0 is unknown, as is the label '-'."""
    letters = [letter for letter in raw.room_names if letter != "-"]
    index = {letter: at for at, letter in enumerate(letters, start=1)}
    rooms: Iterable[tuple[str, ...]] = raw.rooms.values() or [("-",) * len(s) for s in raw.sights.values()]
    table = np.array([index.get(letter, 0) for scan in rooms for letter in scan], dtype=np.int64)
    return table, (UNKNOWN_ROOM, *(raw.room_names[letter] for letter in letters))


def glove_table(raw: Raw, words: tuple[str, ...]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """[W, 300] the vector of each word, zero where there is none, and [W] whether there is one."""
    size = len(next(iter(raw.glove.values()), np.zeros(GLOVE_SIZE)))
    rows = np.zeros((len(words), size), dtype=np.float32)
    there = np.array([word in raw.glove for word in words], dtype=bool)
    for at in np.flatnonzero(there):
        rows[at] = raw.glove[words[at]]
    return rows, there
