"""What can be seen from a viewpoint, as word ids by direction; rooms; word vectors."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from apil.r2r.graph import Arrays, padded
from apil.r2r.layout import DIRECTIONS, Raw, Sight, Tell
from apil.r2r.text import content_words, tokenize

CAPTION_WORDS = 24
"""C: words kept of the captions of a direction."""
OBJECT_WORDS = 12
"""O: words kept of the objects of a direction."""
GLOVE_SIZE = 300
Seen = tuple[list[str], dict[str, float]]
"""One direction of a viewpoint: the distinct content words of its captions, and the distinct words of its objects with
their metres, NaN unknown."""
SeenWords = dict[str, list[list[Seen]]]
"""By scan; for each viewpoint, 8 directions."""


def seen_words(raw: Raw, tell: Tell) -> SeenWords:
    """The words of everything that can be seen."""
    words: SeenWords = {}
    for scan, sights in raw.sights.items():
        tell("captions and objects", len(words), len(raw.sights))
        words[scan] = [[(_caption_words(s, k), _object_words(s, k)) for k in range(DIRECTIONS)] for s in sights]
    return words


def word_counts(raw: Raw, seen: SeenWords) -> tuple[Counter[str], Counter[str]]:
    """How often each token occurs in train instructions, and each word as a caption, object or room word of a direction
    of a viewpoint of a train scan."""
    texts = (text for annotation in raw.splits["train"] for text in annotation.instructions)
    counts: Counter[str] = Counter()
    for scan in sorted({annotation.scan for annotation in raw.splits["train"]}):
        for captions, objects in (direction for directions in seen[scan] for direction in directions):
            counts.update([*captions, *objects])
        for letter in raw.rooms.get(scan, ()):
            counts.update(content_words([raw.room_names[letter]]))
    return Counter(token for text in texts for token in tokenize(text)), counts


def _caption_words(sight: Sight, direction: int) -> list[str]:
    """The distinct content words of a direction: of the middle, down and top captions, then of the summary."""
    rows = sight.captions[direction]
    return content_words([*(rows.get(row, "") for row in ("middle", "down", "top")), sight.summaries[direction]])


def _object_words(sight: Sight, direction: int) -> dict[str, float]:
    """The distinct words of a direction's objects with their metres (NaN: unknown): the nearest first, then those of
    unknown distance, the largest first. Of a name the last word comes first: it says what the thing is."""
    nearby, boxes = sight.nearby[direction], sight.boxes[direction]
    near = sorted(nearby.items(), key=lambda item: (item[1], item[0]))
    large = sorted(boxes, key=lambda name: (-boxes[name], name))
    words: dict[str, float] = {}
    for name, metres in [*near, *((name, float("nan")) for name in large)]:
        parts = content_words([name])
        for word in [*parts[-1:], *parts[:-1]]:
            words.setdefault(word, metres)
    return words


def sight_tables(seen: SeenWords, index: dict[str, int]) -> Arrays:
    """The tables of captions and objects of `World`; words outside the vocabulary are left out."""
    every = [direction for scan in seen.values() for directions in scan for direction in directions]
    captions = [[index[word] for word in words if word in index][:CAPTION_WORDS] for words, _ in every]
    objects = [[(index[word], m) for word, m in of.items() if word in index][:OBJECT_WORDS] for _, of in every]
    tables = {
        "captions": padded(captions, CAPTION_WORDS, 0, np.int16),
        "objects": padded([[word for word, _ in row] for row in objects], OBJECT_WORDS, 0, np.int16),
        "object_distance": padded([[metres for _, metres in row] for row in objects], OBJECT_WORDS, np.nan, np.float16),
    }
    return {name: table.reshape(-1, DIRECTIONS, table.shape[1]) for name, table in tables.items()}


def room_table(raw: Raw) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """[V] index into the names, and the names; 0 is unknown, as is the label '-'."""
    letters = [letter for letter in raw.room_names if letter != "-"]
    index = {letter: at for at, letter in enumerate(letters, start=1)}
    rooms = list(raw.rooms.values()) or [("-",) * len(s) for s in raw.sights.values()]
    table = np.array([index.get(letter, 0) for scan in rooms for letter in scan], dtype=np.int64)
    return table, ("unknown", *(raw.room_names[letter] for letter in letters))


def glove_table(raw: Raw, words: tuple[str, ...]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """[W, 300] the vector of each word, zero where there is none, and [W] whether there is one."""
    none = np.zeros_like(next(iter(raw.glove.values()), np.zeros(GLOVE_SIZE, dtype=np.float32)))
    there = np.array([word in raw.glove for word in words], dtype=bool)
    return np.stack([raw.glove.get(word, none) for word in words]), there
