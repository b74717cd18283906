"""Words: the tokenizer and the vocabulary that instructions, captions, objects and rooms share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from apil.studies.text import texts

PAD, UNKNOWN, END = 0, 1, 2
SPECIAL = ("<pad>", "<unk>", "<eos>")
"""The first three words of every vocabulary."""
TOKENS = 80
"""An instruction is cut to this many tokens, its <eos> included."""
LEAST_IN_INSTRUCTIONS = 3
"""Occurrences in train instructions that make a word one of the vocabulary."""
LEAST_IN_SIGHTS = 20
"""Occurrences in the captions, objects and rooms of train scans that do."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
STOP_WORDS = frozenset(texts("text.toml", "apil.r2r")["stop_words"].split())
"""Words that say nothing of what can be seen in a direction."""


def tokenize(text: str) -> list[str]:
    """Lower case; a run of letters, digits and underscores is a token, and so is each other mark; blanks part them."""
    return _TOKEN.findall(text.lower())


def content_words(texts: Iterable[str]) -> list[str]:
    """The distinct words of some texts in the order they come, without stop words, marks and numbers."""
    words = (word for text in texts for word in tokenize(text))
    return list(dict.fromkeys(word for word in words if word.isalpha() and word not in STOP_WORDS))


def vocabulary(instructions: Counter[str], sights: Counter[str]) -> tuple[str, ...]:
    """The special words; then the words of instructions, then those of sights alone: the most frequent first."""
    words = dict.fromkeys(SPECIAL)
    for counts, least in ((instructions, LEAST_IN_INSTRUCTIONS), (sights, LEAST_IN_SIGHTS)):
        kept = [word for word, count in counts.items() if count >= least]
        words |= dict.fromkeys(sorted(kept, key=lambda word: (-counts[word], word)))
    return tuple(words)


def encode(tokens: Sequence[str], index: dict[str, int]) -> list[int]:
    """The ids of an instruction's tokens, cut, with <eos> at the end."""
    return [index.get(token, UNKNOWN) for token in tokens[: TOKENS - 1]] + [END]


_SIDES = (("left", "right"), ("leftmost", "rightmost"), ("lefts", "rights"), ("clockwise", "counterclockwise"))
_MIRRORED = {word: other for pair in _SIDES for word, other in (pair, pair[::-1])}


def mirror_word(word: str) -> str:
    """What a word becomes in a mirror: left for right, all others themselves."""
    return _MIRRORED.get(word, word)


def mirror_words(vocabulary: Sequence[str]) -> list[int]:
    """The same by number: of the word that each word becomes, if the vocabulary has that; else its own."""
    number = {word: place for place, word in enumerate(vocabulary)}
    return [number.get(mirror_word(word), place) for word, place in number.items()]
