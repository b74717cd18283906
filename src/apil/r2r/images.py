"""Image features in the community's formats, pooled to the eight directions of a panorama.

A panorama has 36 views: view p looks along 30 (p mod 12) degrees. A direction's feature is the mean over the views
that are nearest to it: 3 for directions 0, 2, 4, 6, and 6 for the others."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apil.errors import ApilError
from apil.r2r.layout import DIRECTIONS, Tell, check_covers, direction_of_view

VIEWS = 36
_WIDEST = 2**16
"""Features of a view, at most."""
_AGAIN = "copy or download the file again"


def image_table(path: Path, viewpoints: list[tuple[str, str]], tell: Tell) -> NDArray[np.float16]:
    """[V, 8, F]: the pooled features of each (scan, viewpoint); the file may hold others too."""
    if path.exists() and not path.is_file():
        raise ApilError(f"{path} is not a file: check the name of --image-features.")
    index = {f"{scan}_{viewpoint}": at for at, (scan, viewpoint) in enumerate(viewpoints)}
    rows = _hdf5(path, index) if path.suffix in (".h5", ".hdf5") else _tsv(path)
    table: NDArray[np.float16] | None = None
    done: set[str] = set()
    for key, views in rows:
        if views.ndim != 2 or len(views) != VIEWS or not views.shape[1]:
            raise ApilError(f"{path}: {key} has the shape {views.shape}, not {VIEWS} views: use 36-view features.")
        if key not in index:
            continue
        if key in done:
            raise ApilError(f"{path}: {key} is there twice: leave one of the two out, or {_AGAIN}.")
        if table is None:
            table = np.zeros((len(index), DIRECTIONS, views.shape[1]), dtype=np.float16)
        if views.shape[1] != table.shape[2]:
            raise ApilError(f"{path}: {key} has {views.shape[1]} features, others {table.shape[2]}: {_AGAIN}.")
        table[index[key]] = _pooled(path, key, views)
        done.add(key)
        tell("image features", len(done), len(index))
    check_covers(str(path), list(index), done)
    assert table is not None
    return table


def _pooled(path: Path, key: str, views: NDArray[np.float32]) -> NDArray[np.float16]:
    """[36, F] to [8, F]: the mean of each direction's views, each a number in half precision."""
    if not np.isfinite(views).all():
        raise ApilError(f"{path}: {key} has features that are not finite numbers: {_AGAIN}.")
    belongs = np.array([direction_of_view(view) for view in range(VIEWS)])
    means = np.stack([views[belongs == direction].mean(axis=0) for direction in range(DIRECTIONS)])
    with np.errstate(over="ignore"):  # it is an error below
        found = means.astype(np.float16)
    if not np.isfinite(found).all():
        largest = np.finfo(np.float16).max
        raise ApilError(f"{path}: {key} has features beyond {largest:g}, too large for half precision: scale them.")
    return found


def _tsv(path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The rows of tab-separated scanId, viewpointId, image_w, image_h, vfov, features: scan_viewpoint, [36, F]."""
    try:
        with path.open(encoding="ascii") as file:
            for number, line in enumerate(file, start=1):
                try:
                    scan, viewpoint, _, _, _, features = line.rstrip("\n").split("\t")[:6]
                    data = base64.b64decode(features, validate=True)
                    views = np.frombuffer(data, dtype="<f4").reshape(VIEWS, -1)
                except ValueError:
                    raise ApilError(f"{path}: line {number} is truncated or has no {VIEWS} views: {_AGAIN}.") from None
                yield f"{scan}_{viewpoint}", views
    except UnicodeDecodeError as error:
        raise ApilError(f"{path} is not a tab-separated feature file: give a .tsv, .h5 or .hdf5 file.") from error
    except OSError as error:
        raise ApilError(f"Cannot read {path}: {error.strerror}. Check the name of --image-features.") from error


def _hdf5(path: Path, index: dict[str, int]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The data sets of an HDF5 file, named scan_viewpoint, each [36, F]."""
    try:
        import h5py
    except ImportError:
        raise ApilError(f"{path} is HDF5, which needs h5py: install it with `pip install 'apil[images]'`.") from None
    try:
        with h5py.File(path, "r") as file:
            for key in index:
                link = None if "/" in key else file.get(key, getlink=True)
                if link is None:
                    continue
                # A link, and a table whose numbers lie elsewhere, would read files that nobody named.
                table = file[key] if isinstance(link, h5py.HardLink) else None
                if not isinstance(table, h5py.Dataset) or table.external or table.is_virtual:
                    raise ApilError(f"{path}: {key} is a link or no table of its own: give the file that holds it.")
                if table.dtype.kind not in "fiu" or table.size > VIEWS * _WIDEST:
                    raise ApilError(f"{path}: {key} holds no table of numbers: use 36-view features.")
                yield key, np.asarray(table, dtype=np.float32)
    except (OSError, KeyError, RuntimeError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ApilError(f"Cannot read {path} ({why}): check the name of --image-features, or {_AGAIN}.") from error
