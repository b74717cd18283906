"""Raw files of two small houses in the public layout of Room-to-Room."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from apil.r2r.checksum import tables_checksum
from apil.r2r.world import METADATA

Files = dict[str, Any]
"""By path in the layout: what a JSON file holds, a text, or bytes."""

ALPHA = {
    "a0": (0.0, 0.0, 1.0),
    "a1": (0.0, 2.0, 1.0),
    "ax": (1.0, 1.0, 1.0),
    "a2": (2.0, 3.0, 1.0),
    "a3": (2.0, 4.0, 2.0),
    "a4": (1.0, 4.0, 1.0),
    "a5": (0.5, 3.0, 1.0),
    "a6": (9.0, 9.0, 1.0),
}
"""ax is not included; a6 has no exits; from a1 to a3 the ways over a2 and a4 are equally short; a5 is a dead end."""
ALPHA_EDGES = ("a0 a1", "a1 a2", "a2 a3", "a1 a4", "a4 a3", "a1 a5", "a0 ax", "ax a2")
BETA = {f"b{k}": (0.0, -1.5 * k, 0.0) for k in range(6)}
"""A corridor that leads south."""
BETA_EDGES = tuple(f"b{k} b{k + 1}" for k in range(5))


def made_up_files() -> Files:
    """Everything that the layout can hold."""
    files: Files = {
        "connectivity/alpha_connectivity.json": _graph(ALPHA, ALPHA_EDGES),
        "connectivity/beta_connectivity.json": _graph(BETA, BETA_EDGES),
        "connectivity/scans.txt": "alpha\nbeta\n",
        "annotations/R2R_train.json": [
            _path(
                1, "alpha", "a0 a1 a2 a3", "Walk past the bed, then STOP.", "Walk past the 2nd bed!", "Go to the door."
            ),
            _path(2, "alpha", "a3 a4 a1", "Walk past the door and stop.", "Go past the zebra. Stop at the door."),
        ],
        "annotations/R2R_val_seen.json": [_path(3, "alpha", "a2 a1 a0", "Walk past the unicorn.")],
        "annotations/R2R_val_unseen.json": [_path(4, "beta", "b0 b1 b2 b3", "Go to the bed.", "Walk. Stop.")],
        "annotations/R2R_test.json": [_path(5, "beta", "b5", "Go to the door.")],
        "derived/rooms.json": {
            "alpha": {name: ["b" if name == "a0" else "h", 0] for name in ALPHA if name != "ax"},
            "beta": {name: ["-", 0] for name in BETA},
        },
        "rooms/region_label.txt": "a,bathroom\nb,bedroom\nh,hallway\n-,no-label\n",
        "embeddings/trainval_vocab.txt": "<PAD>\n<UNK>\n<EOS>\nbed\n. .\ndoor\n",
        "embeddings/trainval_glove.npy": _array(np.arange(6 * 300, dtype=np.float32).reshape(6, 300)),
    }
    for scan, names in (("alpha", [name for name in ALPHA if name != "ax"]), ("beta", list(BETA))):
        files[f"captions/blip2_24view/{scan}.json"] = {name: _captions() for name in names}
        files[f"captions/gpt35_8dir_summary/{scan}.json"] = {name: ["A scene with a lamp."] * 8 for name in names}
        files[f"objects/reverie_bbox/{scan}.json"] = {name: _boxes() for name in names}
        files[f"objects/navgpt_objects_list/{scan}.json"] = {name: _nearby() for name in names}
    return files


def _graph(places: dict[str, tuple[float, float, float]], edges: tuple[str, ...]) -> list[dict[str, Any]]:
    joined = {frozenset(edge.split()) for edge in edges}
    return [
        {
            "image_id": name,
            "pose": [1, 0, 0, x, 0, 1, 0, y, 0, 0, 1, z, 0, 0, 0, 1],
            "included": name != "ax",
            "unobstructed": [frozenset((name, other)) in joined for other in places],
        }
        for name, (x, y, z) in places.items()
    ]


def _path(number: int, scan: str, path: str, *instructions: str) -> dict[str, Any]:
    return {"path_id": number, "scan": scan, "path": path.split(), "heading": 0.5, "instructions": list(instructions)}


def _captions() -> list[str]:
    """The same everywhere, but for direction 3, whose chair looks along 135 degrees."""
    plain = "down: a rug on the floor\nmiddle: a bed and a lamp\ntop: the ceiling above a bed"
    return [plain if direction != 3 else "down: a rug\nmiddle: a chair" for direction in range(8)]


def _boxes() -> dict[str, Any]:
    """A bath cabinet in the views along 0 and 60 degrees, a bed in all of them."""
    everywhere = list(range(36))
    return {
        "7": {"name": "bath#cabinet", "visible_pos": [12, 2], "bbox2d": [[0, 0, 100, 100], [0, 0, 5, 5]]},
        "8": {"name": "bed", "visible_pos": everywhere, "bbox2d": [[0, 0, 10, 10]] * 36},
    }


def _nearby() -> list[dict[str, Any]]:
    """A far bed and a near lamp along 0 degrees."""
    return [{"bed ": {"heading": -2.0, "distance": 2.5}, "lamp": {"heading": 3.0, "distance": 1.25}}] + [{}] * 7


def _array(rows: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, rows)
    return buffer.getvalue()


def _encoded(files: Files) -> dict[str, bytes]:
    return {
        name: value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()
        for name, value in files.items()
    }


def write_folder(folder: Path, files: Files) -> Path:
    """The files as they are."""
    for name, data in _encoded(files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_archives(folder: Path, files: Files) -> Path:
    """An archive for each top folder."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = _encoded(files)
    for top in sorted({name.split("/")[0] for name in encoded}):
        with tarfile.open(folder / f"{top}.tar.xz", "w:xz") as tar:
            for name, data in encoded.items():
                if name.startswith(f"{top}/"):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return folder


def read_compiled(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What the header of compiled data says, and their tables."""
    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()[METADATA])
        return about, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a mapping)


def write_compiled(file: Path, about: dict[str, Any], tables: dict[str, torch.Tensor], *, seal: bool = True) -> None:
    """Writes compiled data, with a checksum that fits unless it is left as it is."""
    if seal:
        about = {**about, "tables": tables_checksum(about, {name: table.numpy() for name, table in tables.items()})}
    save_file({name: table.contiguous() for name, table in tables.items()}, file, {METADATA: json.dumps(about)})
