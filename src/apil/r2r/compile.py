"""From the raw files to one compiled file: checked as a whole, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from apil.errors import ApilError
from apil.r2r.features import glove_table, instruction_counts, room_table, seen_words, sight_counts, sight_tables
from apil.r2r.graph import graph_tables
from apil.r2r.images import image_table
from apil.r2r.language import LanguageModel, model_folder, reading_tables
from apil.r2r.layout import (
    BLIP,
    BOXES,
    LISTS,
    SUMMARY,
    Annotation,
    Graph,
    Raw,
    Tell,
    read_layout,
    unread_annotations,
)
from apil.r2r.sources import Source, open_source
from apil.r2r.text import TOKENS, encode, tokenize, vocabulary
from apil.r2r.world import FILE, METADATA, SCHEMA

Arrays = dict[str, NDArray[np.generic]]


def compile_world(
    folder: Path, out: Path, tell: Tell, image_features: Path | None = None, text_model: str | None = None
) -> Path:
    """Compiles the raw files in `folder` into `out`/r2r.safetensors and returns its path.

    `text_model` names a language model, or its folder, that reads the instructions.

    The same files give the same bytes, from a folder and from archives. On an error nothing is written.
    """
    tell("reading", 0, 1)
    reader = None if text_model is None else LanguageModel.open(model_folder(text_model))
    source = open_source(folder)
    raw = read_layout(source, tell)
    _check_paths(source, raw)
    tell("graphs", 0, 1)
    arrays = graph_tables(list(raw.graphs.values()))
    seen = seen_words(raw, tell)
    tell("words", 0, 1)
    words = vocabulary(instruction_counts(raw), sight_counts(raw, seen))
    if len(words) > np.iinfo(np.int16).max:
        raise ApilError(f"{folder} has {len(words)} frequent words, more than word ids can name: use fewer texts.")
    index = {word: at for at, word in enumerate(words)}
    metadata = _metadata(raw, words)
    if unread := unread_annotations(source):
        metadata["unread"] = unread
    for split, paths in raw.splits.items():
        arrays.update(_split_tables(split, paths, raw, index))
    arrays.update(sight_tables(seen, index))
    arrays["room"], metadata["room_names"] = room_table(raw)
    arrays["glove"], arrays["has_glove"] = glove_table(raw, words)
    if image_features is not None:
        pairs = [(scan, viewpoint) for scan, graph in raw.graphs.items() for viewpoint in graph.viewpoints]
        arrays["images"] = image_table(image_features, pairs, tell)
        metadata["features"].append("images")
        with image_features.open("rb") as file:
            source.sha256[image_features.name] = hashlib.file_digest(file, "sha256").hexdigest()
    if reader is not None:
        arrays.update(reading_tables(raw, reader, tell))
        metadata["features"].append("readings")
        source.sha256["text model"] = reader.sha256
    metadata["sha256"] = source.sha256
    tell("writing", 0, 1)
    path = out / FILE
    _write(path, arrays, metadata)
    return path


def _metadata(raw: Raw, words: tuple[str, ...]) -> dict[str, Any]:
    """What the header says, all but the checksums."""
    folders = set(raw.folders)
    has = {
        "captions": bool(folders & {BLIP, SUMMARY}),
        "objects": bool(folders & {BOXES, LISTS}),
        "rooms": bool(raw.rooms),
        "glove": bool(raw.glove),
    }
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
            graph = raw.graphs.get(annotation.scan)
            item = f"path {annotation.path_id}"
            if graph is None:
                raise ApilError(
                    f"{file} in {source.folder}: {item} is in scan '{annotation.scan}', which has no "
                    f"connectivity/{annotation.scan}_connectivity.json: copy or download that file."
                )
            why = _off_graph(annotation, graph)
            if why:
                raise source.bad(file, f"{item} {why} ({graph.file})")


def _off_graph(annotation: Annotation, graph: Graph) -> str | None:
    """What is wrong with a path, if anything."""
    local = {viewpoint: at for at, viewpoint in enumerate(graph.viewpoints)}
    for viewpoint in annotation.path:
        if viewpoint in graph.excluded:
            return f"goes through viewpoint {viewpoint}, which is not included in the graph"
        if viewpoint not in local:
            return f"goes through viewpoint {viewpoint}, which the graph lacks"
    for a, b in zip(annotation.path, annotation.path[1:], strict=False):
        if not graph.open[local[a], local[b]]:
            return f"goes from {a} to {b}, which no open edge joins"
    return None


def _split_tables(split: str, paths: Iterable[Annotation], raw: Raw, index: dict[str, int]) -> Arrays:
    """An episode for each instruction; see `Split` for the tables."""
    number = _numbers(raw)
    rows = [(k, a, encode(tokenize(text), index)) for k, a in enumerate(paths) for text in a.instructions]
    longest = max(len(annotation.path) for _, annotation, _ in rows)
    tokens = np.zeros((len(rows), TOKENS), dtype=np.int16)
    path = np.full((len(rows), longest), -1, dtype=np.int64)
    for at, (_, annotation, ids) in enumerate(rows):
        tokens[at, : len(ids)] = ids
        path[at, : len(annotation.path)] = [number[annotation.scan, viewpoint] for viewpoint in annotation.path]
    last = np.array([len(annotation.path) - 1 for _, annotation, _ in rows])
    tables: Arrays = {
        "start": path[:, 0].copy(),
        "goal": np.full(len(rows), -1) if split == "test" else path[np.arange(len(rows)), last],
        "heading": np.array([annotation.heading for _, annotation, _ in rows], dtype=np.float32),
        "tokens": tokens,
        "tokens_length": np.array([len(ids) for _, _, ids in rows], dtype=np.int64),
        "path": path,
        "path_index": np.array([k for k, _, _ in rows], dtype=np.int64),
    }
    return {f"{split}/{name}": table for name, table in tables.items()}


def _numbers(raw: Raw) -> dict[tuple[str, str], int]:
    """The number of each (scan, viewpoint)."""
    pairs = ((scan, viewpoint) for scan, graph in raw.graphs.items() for viewpoint in graph.viewpoints)
    return {pair: at for at, pair in enumerate(pairs)}


def _write(path: Path, arrays: Arrays, metadata: dict[str, Any]) -> None:
    """A new file beside `path`, made durable, then moved into place."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    # One entry: several would stand in the header in no fixed order.
    header = {METADATA: json.dumps(metadata, ensure_ascii=False)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata=header))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise ApilError(
            f"Cannot write {path}: {error.strerror}. Check space and permissions, or choose another --out."
        ) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
