"""From the raw files to one compiled file: checked as a whole, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from apil.errors import ApilError
from apil.files import write_bytes
from apil.r2r.checksum import NAME as CHECKSUM
from apil.r2r.checksum import tables_checksum
from apil.r2r.features import glove_table, room_table, seen_words, sight_tables, word_counts
from apil.r2r.graph import Arrays, graph_tables, padded
from apil.r2r.images import image_table
from apil.r2r.language import LanguageModel, model_folder, reading_tables
from apil.r2r.layout import BLIP, BOXES, LISTS, SPLITS, SUMMARY, Annotation, Graph, Raw, Tell, read_layout
from apil.r2r.sources import Source, open_source
from apil.r2r.text import TOKENS, encode, tokenize, vocabulary
from apil.r2r.world import FILE, METADATA, SCHEMA


def compile_world(
    folder: Path, out: Path, tell: Tell, image_features: Path | None = None, text_model: str | None = None
) -> Path:
    """Compiles the raw files in `folder` into `out`/r2r.safetensors and returns its path.

    `text_model` names a language model, or its folder, that reads the instructions. The same files give the same bytes,
    from a folder and from archives. On an error nothing is written."""
    tell("reading", 0, 1)
    reader = None if text_model is None else LanguageModel.open(model_folder(text_model))
    source = open_source(folder)
    raw = read_layout(source, tell)
    _check_paths(source, raw)
    tell("graphs", 0, 1)
    arrays = graph_tables(list(raw.graphs.values()))
    seen = seen_words(raw, tell)
    tell("words", 0, 1)
    words = vocabulary(*word_counts(raw, seen))
    if len(words) > np.iinfo(np.int16).max:
        raise ApilError(f"{folder} has {len(words)} frequent words, more than word ids can name: use fewer texts.")
    index = {word: at for at, word in enumerate(words)}
    pairs = [(scan, viewpoint) for scan, graph in raw.graphs.items() for viewpoint in graph.viewpoints]
    numbers = {pair: at for at, pair in enumerate(pairs)}
    metadata = _metadata(source, raw, words)
    known = [f"annotations/R2R_{split}.json" for split in SPLITS]
    if unread := [name for name in source.under("annotations") if name.endswith(".json") and name not in known]:
        metadata["unread"] = unread
    for split, paths in raw.splits.items():
        arrays.update(_split_tables(split, paths, numbers, index))
    arrays.update(sight_tables(seen, index))
    arrays["room"], metadata["room_names"] = room_table(raw)
    arrays["glove"], arrays["has_glove"] = glove_table(raw, words)
    if image_features is not None:
        arrays["images"] = image_table(image_features, pairs, tell)
        metadata["features"].append("images")
        with image_features.open("rb") as file:
            source.sha256[image_features.name] = hashlib.file_digest(file, "sha256").hexdigest()
    if reader is not None:
        arrays.update(reading_tables(raw, reader, tell))
        metadata["features"].append("readings")
        source.sha256["text model"] = reader.sha256
    metadata["sha256"] = source.sha256
    tables = {name: np.ascontiguousarray(table) for name, table in arrays.items()}
    metadata[CHECKSUM] = tables_checksum(metadata, tables)
    tell("writing", 0, 1)
    # One entry: several would stand in the header in no fixed order.
    header = {METADATA: json.dumps(metadata, ensure_ascii=False)}
    with suppress(OSError):  # the next line says why a file cannot be written
        out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / FILE, save(tables, header))
    return out / FILE


def _metadata(source: Source, raw: Raw, words: tuple[str, ...]) -> dict[str, Any]:
    """What the header says, all but the checksums."""
    captions, objects = (source.under(a) or source.under(b) for a, b in ((BLIP, SUMMARY), (BOXES, LISTS)))
    has = {"captions": captions, "objects": objects, "rooms": raw.rooms, "glove": raw.glove}
    return {
        "schema": SCHEMA,
        "scans": list(raw.graphs),
        "viewpoints": [viewpoint for graph in raw.graphs.values() for viewpoint in graph.viewpoints],
        "excluded": sum(len(graph.excluded) for graph in raw.graphs.values()),
        "vocabulary": words,
        "features": [name for name, there in has.items() if there],
        "names": {
            split: [f"{a.path_id}_{k}" for a in paths for k in range(len(a.instructions))]
            for split, paths in raw.splits.items()
        },
    }


def _check_paths(source: Source, raw: Raw) -> None:
    """Every annotated path stands in a known scan and goes along open edges."""
    for split, paths in raw.splits.items():
        file = f"annotations/R2R_{split}.json"
        for annotation in paths:
            scan, item = annotation.scan, f"path {annotation.path_id}"
            if scan not in raw.graphs:
                needed = f"it is missing, but {item} of {file} is in scan '{scan}'"
                raise source.bad(f"connectivity/{scan}_connectivity.json", needed)
            if why := _off_graph(annotation, raw.graphs[scan]):
                raise source.bad(file, f"{item} goes {why} ({raw.graphs[scan].file})")


def _off_graph(annotation: Annotation, graph: Graph) -> str:
    """Where a path leaves the graph, if it does."""
    local = {viewpoint: at for at, viewpoint in enumerate(graph.viewpoints)}
    for viewpoint in annotation.path:
        if viewpoint not in local:
            lacks = "is not included in the graph" if viewpoint in graph.excluded else "the graph lacks"
            return f"through viewpoint {viewpoint}, which {lacks}"
    for a, b in pairwise(annotation.path):
        if not graph.open[local[a], local[b]]:
            return f"from {a} to {b}, which no open edge joins"
    return ""


def _split_tables(
    split: str, paths: tuple[Annotation, ...], numbers: dict[tuple[str, str], int], index: dict[str, int]
) -> Arrays:
    """An episode for each instruction; see `Split` for the tables."""
    rows = [(k, a, encode(tokenize(text), index)) for k, a in enumerate(paths) for text in a.instructions]
    walks = [[numbers[a.scan, viewpoint] for viewpoint in a.path] for _, a, _ in rows]
    goals = [-1 if split == "test" else walk[-1] for walk in walks]
    tables: Arrays = {
        "start": np.array([walk[0] for walk in walks], dtype=np.int64),
        "goal": np.array(goals, dtype=np.int64),
        "heading": np.array([a.heading for _, a, _ in rows], dtype=np.float32),
        "tokens": padded([ids for _, _, ids in rows], TOKENS, 0, np.int16),
        "tokens_length": np.array([len(ids) for _, _, ids in rows], dtype=np.int64),
        "path": padded(walks, max(map(len, walks)), -1, np.int64),
        "path_index": np.array([k for k, _, _ in rows], dtype=np.int64),
    }
    return {f"{split}/{name}": table for name, table in tables.items()}
