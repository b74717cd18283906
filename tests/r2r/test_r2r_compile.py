"""Small houses from raw files to tensors: each table against what the raw files say."""

from __future__ import annotations

import base64
import hashlib
import io
import lzma
import math
import os
import sys
import tarfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_r2r import ALPHA, ALPHA_EDGES, Files, made_up_files, write_archives, write_folder

from apil.errors import ApilError
from apil.r2r.compile import compile_world
from apil.r2r.text import tokenize
from apil.r2r.world import World


def _silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


def _compiled(tmp_path: Path, files: Files, **options: Any) -> World:
    return World.open(compile_world(write_folder(tmp_path / "raw", files), tmp_path / "out", _silent, **options))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return _compiled(tmp_path_factory.mktemp("r2r"), made_up_files())


def _at(world: World, *names: str) -> torch.Tensor:
    return torch.tensor([world.viewpoints.index(name) for name in names])


def _exits(world: World, viewpoint: str) -> list[str]:
    return [world.viewpoints[k] for k in world.neighbours[int(_at(world, viewpoint))].tolist() if k >= 0]


def _floyd() -> dict[tuple[str, str], float]:
    """Distances in alpha by another way than Dijkstra's."""
    names = [name for name in ALPHA if name != "ax"]
    far = {(a, b): 0.0 if a == b else math.inf for a, b in product(names, names)}
    for a, b in (edge.split() for edge in ALPHA_EDGES):
        if "ax" not in (a, b):
            far[a, b] = far[b, a] = math.dist(ALPHA[a], ALPHA[b])
    for via, a, b in product(names, names, names):
        far[a, b] = min(far[a, b], far[a, via] + far[via, b])
    return far


def test_only_included_viewpoints_and_their_open_edges_are_there(world: World) -> None:
    assert world.scans == ("alpha", "beta")
    assert world.viewpoints == ("a0", "a1", "a2", "a3", "a4", "a5", "a6", "b0", "b1", "b2", "b3", "b4", "b5")
    assert world.excluded == 1
    assert _exits(world, "a0") == ["a1"]
    assert _exits(world, "a1") == ["a0", "a2", "a4", "a5"]
    assert _exits(world, "a6") == []
    assert _exits(world, "b1") == ["b0", "b2"]


def test_exits_have_their_heading_elevation_and_length(world: World) -> None:
    north, up, south = _at(world, "a0", "a2", "b0")
    assert float(world.heading[north, 0]) == 0.0
    assert float(world.heading[south, 0]) == pytest.approx(math.pi)
    # a2 to a3: one metre north and one up.
    slot = world.neighbours[up].tolist().index(int(_at(world, "a3")))
    assert float(world.elevation[up, slot]) == pytest.approx(math.pi / 4)
    assert float(world.length[up, slot]) == pytest.approx(math.sqrt(2))
    # a3 to a4 is west: 3/4 of a turn clockwise.
    west = _at(world, "a3")[0]
    slot = world.neighbours[west].tolist().index(int(_at(world, "a4")))
    assert float(world.heading[west, slot]) == pytest.approx(1.5 * math.pi)


def test_distances_are_those_of_another_algorithm(world: World) -> None:
    far = _floyd()
    pairs = list(far)
    a, b = _at(world, *(pair[0] for pair in pairs)), _at(world, *(pair[1] for pair in pairs))
    expected = torch.tensor([far[pair] for pair in pairs])
    torch.testing.assert_close(world.distance(a, b), expected)
    torch.testing.assert_close(world.distance(a.view(7, 7), b.view(7, 7)), expected.view(7, 7))
    torch.testing.assert_close(world.distances[: len(expected)], expected)
    assert world.distance(_at(world, "a0"), _at(world, "b0")).isinf().all()


def test_the_next_exit_is_the_first_that_lies_on_a_shortest_path(world: World) -> None:
    far = _floyd()
    for (a, goal), metres in far.items():
        slot = int(world.next_slot(_at(world, a), _at(world, goal)))
        exits = _exits(world, a)
        on_path = [k for k, b in enumerate(exits) if abs(math.dist(ALPHA[a], ALPHA[b]) + far[b, goal] - metres) < 1e-6]
        assert slot == (-1 if a == goal or math.isinf(metres) else on_path[0]), (a, goal)
    # Two equally short ways from a1 to a3: over a2, which the file has before a4.
    assert int(world.next_slot(_at(world, "a1"), _at(world, "a3"))) == 1
    assert int(world.next_slot(_at(world, "a1"), _at(world, "b0"))) == -1


@pytest.mark.parametrize(("shorter", "slot"), [(1e-8, 1), (1e-3, 2)])
def test_ways_that_differ_by_rounding_are_equally_short(tmp_path: Path, shorter: float, slot: int) -> None:
    files = made_up_files()
    a4 = next(entry for entry in files["connectivity/alpha_connectivity.json"] if entry["image_id"] == "a4")
    a4["pose"][7] -= shorter
    world = _compiled(tmp_path, files)
    assert int(world.next_slot(_at(world, "a1"), _at(world, "a3"))) == slot


def test_an_episode_is_an_instruction(world: World) -> None:
    train = world.split("train")
    assert train.names == ("1_0", "1_1", "1_2", "2_0", "2_1")
    assert train.path_index.tolist() == [0, 0, 0, 1, 1]
    assert train.one_per_path().tolist() == [0, 3]
    assert train.start.tolist() == _at(world, "a0", "a0", "a0", "a3", "a3").tolist()
    assert train.goal.tolist() == _at(world, "a3", "a3", "a3", "a1", "a1").tolist()
    assert train.path[3].tolist() == [*_at(world, "a3", "a4", "a1").tolist(), -1]
    assert train.heading.tolist() == [0.5] * 5
    test = world.split("test")
    assert (test.start.tolist(), test.goal.tolist()) == (_at(world, "b5").tolist(), [-1])


def test_the_tokens_of_an_instruction_are_its_words(world: World) -> None:
    def words(split: str, episode: int) -> list[str]:
        part = world.split(split)
        assert part.tokens.shape[1] == 80
        length = int(part.tokens_length[episode])
        assert not part.tokens[episode, length:].any()
        return [world.vocabulary[k] for k in part.tokens[episode, :length].tolist()]

    assert words("train", 3) == ["walk", "past", "the", "door", "<unk>", "stop", ".", "<eos>"]
    assert words("val_seen", 0) == ["walk", "past", "the", "<unk>", ".", "<eos>"]
    assert tokenize("Don't  STOP at the 2nd_door...") == [
        "don",
        "'",
        "t",
        "stop",
        "at",
        "the",
        "2nd_door",
        ".",
        ".",
        ".",
    ]


def test_the_vocabulary_has_what_is_frequent_in_train(world: World) -> None:
    assert world.vocabulary[:3] == ("<pad>", "<unk>", "<eos>")
    # At least 3 times in train instructions, the most frequent first; then at least 20 times in sights of alpha.
    assert world.vocabulary[3:9] == ("the", ".", "past", "door", "stop", "walk")
    assert set(world.vocabulary[9:]) == {"bed", "lamp", "rug", "floor", "ceiling"}


def test_a_long_instruction_is_cut_and_still_ends(tmp_path: Path) -> None:
    files = made_up_files()
    files["annotations/R2R_val_seen.json"][0]["instructions"] = ["door " * 200]
    split = _compiled(tmp_path, files).split("val_seen")
    assert split.tokens_length.tolist() == [80]
    assert split.tokens[0, -1] == 2
    assert (split.tokens[0, :-1] == split.tokens[0, 0]).all()


def test_captions_are_the_content_words_of_a_direction(world: World) -> None:
    def words(viewpoint: str, direction: int) -> list[str]:
        row = world.captions[int(_at(world, viewpoint)), direction]
        return [world.vocabulary[k] for k in row.tolist() if k]

    assert words("a1", 0) == ["bed", "lamp", "rug", "floor", "ceiling"]
    # "chair" is too rare for the vocabulary; the lamp is the summary's.
    assert words("b2", 3) == ["rug", "lamp"]
    assert world.captions.shape == (13, 8, 24)


def test_objects_are_sorted_by_distance_and_then_by_size(tmp_path: Path) -> None:
    files = made_up_files()
    # Words of objects that captions have often enough to be known.
    for scan in ("alpha", "beta"):
        names = files[f"captions/gpt35_8dir_summary/{scan}.json"]
        files[f"captions/gpt35_8dir_summary/{scan}.json"] = {name: ["lamp bath cabinet"] * 8 for name in names}
    world = _compiled(tmp_path, files)

    def things(direction: int) -> list[tuple[str, float]]:
        words, metres = world.objects[0, direction].tolist(), world.object_distance[0, direction].tolist()
        return [(world.vocabulary[k], -1.0 if math.isnan(m) else m) for k, m in zip(words, metres, strict=True) if k]

    assert things(0) == [("lamp", 1.25), ("bed", 2.5), ("cabinet", -1.0), ("bath", -1.0)]
    # The view along 60 degrees belongs to direction 1; six views show the bed there.
    assert things(1) == [("bed", -1.0), ("cabinet", -1.0), ("bath", -1.0)]
    assert things(2) == [("bed", -1.0)]


def test_rooms_and_word_vectors(world: World) -> None:
    assert world.room_names == ("unknown", "bathroom", "bedroom", "hallway")
    assert [world.room_names[k] for k in world.room[[0, 1, 12]].tolist()] == ["bedroom", "hallway", "unknown"]
    known = [word for word, there in zip(world.vocabulary, world.has_glove.tolist(), strict=True) if there]
    assert known == ["door", "bed"]
    door = world.glove[world.vocabulary.index("door")]
    torch.testing.assert_close(door, torch.arange(1500.0, 1800.0))
    assert not world.glove[~world.has_glove].any()


def test_graphs_and_annotations_are_enough(tmp_path: Path) -> None:
    files = {name: value for name, value in made_up_files().items() if name.startswith(("conn", "anno"))}
    del files["annotations/R2R_test.json"], files["connectivity/scans.txt"]
    world = _compiled(tmp_path, files)
    assert world.features == ()
    assert set(world.splits) == {"train", "val_seen", "val_unseen"}
    assert world.room_names == ("unknown",)
    assert not world.room.any()
    assert not world.captions.any()
    assert not world.objects.any()
    assert not world.has_glove.any()
    assert world.glove.shape == (len(world.vocabulary), 300)


def test_archives_and_folders_give_the_same_bytes(tmp_path: Path) -> None:
    files = made_up_files()
    folder = compile_world(write_folder(tmp_path / "folder", files), tmp_path / "1", _silent)
    packed = compile_world(write_archives(tmp_path / "packed", files), tmp_path / "2", _silent)
    again = compile_world(tmp_path / "packed", tmp_path / "3", _silent)
    assert folder.read_bytes() == packed.read_bytes() == again.read_bytes()
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["r2r.safetensors"]
    world = World.open(folder)
    assert world.features == ("captions", "objects", "rooms", "glove")
    assert len(world.sha256["annotations/R2R_train.json"]) == 64


def test_parts_may_be_packed_beside_others_that_are_not(tmp_path: Path) -> None:
    files = made_up_files()
    whole = compile_world(write_folder(tmp_path / "folder", files), tmp_path / "1", _silent)
    for tops in (("connectivity", "annotations"), ("captions/blip2_24view", "embeddings")):
        mixed = tmp_path / tops[1]
        write_folder(mixed, {name: value for name, value in files.items() if name.startswith(tops)})
        write_archives(mixed, {name: value for name, value in files.items() if not name.startswith(tops)})
        found = compile_world(mixed, tmp_path / "2", _silent)
        assert found.read_bytes() == whole.read_bytes()


def test_an_unpacked_file_goes_before_a_packed_one(tmp_path: Path) -> None:
    files = made_up_files()
    write_archives(tmp_path / "raw", files)
    files["annotations/R2R_val_seen.json"][0]["instructions"] = ["Walk past the door."]
    write_folder(tmp_path / "raw", {name: files[name] for name in ("annotations/R2R_val_seen.json",)})
    split = World.open(compile_world(tmp_path / "raw", tmp_path / "out", _silent)).split("val_seen")
    assert split.tokens_length.tolist() == [6]
    assert not (split.tokens == 1).any()


def test_a_wrong_name_of_a_split_is_told(world: World) -> None:
    with pytest.raises(ApilError, match=r"Unknown split 'val_unsen'\. Did you mean 'val_unseen'"):
        world.split("val_unsen")


def test_a_file_that_is_not_compiled_is_told(tmp_path: Path) -> None:
    with pytest.raises(ApilError, match=r"r2r\.safetensors does not exist: make it with `apil data r2r"):
        World.open(tmp_path)
    whole = compile_world(write_folder(tmp_path / "raw", made_up_files()), tmp_path, _silent)
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(ApilError, match="damaged"):
        World.open(tmp_path)


def _views(world: World) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """36 views of 4 features: heading in units of 30 degrees, row, number of the viewpoint, 1."""
    return {
        f"{world.scans[int(world.scan[k])]}_{name}": np.array([[p % 12, p // 12, k, 1] for p in range(36)], np.float32)
        for k, name in enumerate(world.viewpoints)
    }


def _write_tsv(path: Path, views: dict[str, np.ndarray[Any, np.dtype[np.float32]]]) -> Path:
    rows = []
    for key, value in views.items():
        scan, _, viewpoint = key.partition("_")
        rows.append("\t".join((scan, viewpoint, "640", "480", "60", base64.b64encode(value.tobytes()).decode())))
    path.write_text("\n".join(rows) + "\n")
    return path


def _check_images(world: World) -> None:
    assert world.features[-1] == "images"
    assert world.images is not None
    assert world.images.shape == (13, 8, 4)
    # Direction 0 has the views along 0, direction 1 those along 30 and 60, direction 7 along 300 and 330 degrees.
    assert world.images[:, :, 0].tolist() == [[0, 1.5, 3, 4.5, 6, 7.5, 9, 10.5]] * 13
    assert world.images[:, :, 1].tolist() == [[1.0] * 8] * 13
    assert world.images[:, 0, 2].tolist() == list(range(13))


def test_image_features_from_a_tsv(world: World, tmp_path: Path) -> None:
    views = _views(world)
    views["gamma_elsewhere"] = views["alpha_a0"]
    file = _write_tsv(tmp_path / "features.tsv", views)
    compiled = _compiled(tmp_path, made_up_files(), image_features=file)
    _check_images(compiled)
    assert compiled.sha256["features.tsv"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_image_features_from_hdf5(world: World, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="needs the extra `images`")
    with h5py.File(tmp_path / "features.hdf5", "w") as file:
        for key, value in _views(world).items():
            file[key] = value
    _check_images(_compiled(tmp_path, made_up_files(), image_features=tmp_path / "features.hdf5"))
    with h5py.File(tmp_path / "features.hdf5", "a") as file:
        del file["alpha_a5"]
    with pytest.raises(ApilError, match="lacks 1 of 13 viewpoints, for example alpha_a5"):
        _compiled(tmp_path, made_up_files(), image_features=tmp_path / "features.hdf5")


def test_bad_hdf5_features_are_told(world: World, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="needs the extra `images`")
    path = tmp_path / "features.h5"
    for content, message in (
        (["no number"] * 36, r"features\.h5: alpha_a2 holds no table of numbers: use 36-view features"),
        (np.full((36, 4), 1e30), "alpha_a2 has features beyond 65504"),
        (np.zeros((36, 0)), r"alpha_a2 has the shape \(36, 0\)"),
    ):
        with h5py.File(path, "w") as file:
            for key, value in (_views(world) | {"alpha_a2": content}).items():
                file[key] = value
        with pytest.raises(ApilError, match=message):
            _compiled(tmp_path, made_up_files(), image_features=path)


def test_hdf5_without_h5py_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ApilError, match=r"pip install 'apil\[images\]'"):
        _compiled(tmp_path, made_up_files(), image_features=tmp_path / "features.hdf5")


def test_bad_image_features_are_told(world: World, tmp_path: Path) -> None:
    views = _views(world)
    file = tmp_path / "features.tsv"
    for change, message in (
        ({"alpha_a2": views["alpha_a2"][:30]}, "line 3 is truncated or has no 36 views"),
        ({"alpha_a2": views["alpha_a2"][:, :3]}, "alpha_a2 has 3 features, others 4"),
        ({"alpha_a0": views["alpha_a0"][:, :0]}, r"features\.tsv: alpha_a0 has the shape \(36, 0\)"),
        ({"beta_b1": views["beta_b1"] * np.float32("nan")}, r"features\.tsv: beta_b1 has features that are not finite"),
        ({"beta_b1": views["beta_b1"] + np.float32("inf")}, "beta_b1 has features that are not finite"),
        ({"beta_b1": views["beta_b1"] + np.float32(65520)}, "beta_b1 has features beyond 65504, .*: scale them"),
    ):
        _write_tsv(file, views | change)
        with pytest.raises(ApilError, match=message):
            _compiled(tmp_path, made_up_files(), image_features=file)
    _write_tsv(file, views)
    file.write_text(file.read_text() + file.read_text().splitlines()[4] + "\n")
    with pytest.raises(ApilError, match=r"features\.tsv: alpha_a4 is there twice: leave one of the two out"):
        _compiled(tmp_path, made_up_files(), image_features=file)
    _write_tsv(file, views)
    file.write_text(file.read_text()[:-40])
    with pytest.raises(ApilError, match="line 13 is truncated"):
        _compiled(tmp_path, made_up_files(), image_features=file)
    assert not list((tmp_path).glob("out/*"))


# Archives and features that somebody else made.


def _xz(content: bytes) -> bytes:
    return lzma.compress(content, preset=0)


def _refused(tmp_path: Path, message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        compile_world(tmp_path / "raw", tmp_path / "out", _silent)
    assert "\n" not in str(caught.value)


def test_an_archive_that_holds_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte that unpacks to gigabytes; in one stream or in two."""
    monkeypatch.setattr("apil.r2r.sources._LARGEST", 2**20)
    (tmp_path / "raw").mkdir()
    for content in (_xz(bytes(2**20 + 1)), _xz(bytes(2**19)) + _xz(bytes(2**20))):
        (tmp_path / "raw" / "connectivity.tar.xz").write_bytes(content)
        _refused(tmp_path, r"connectivity\.tar\.xz holds more than 1 MiB")


def test_an_archive_of_two_streams_is_read(tmp_path: Path) -> None:
    raw = write_archives(tmp_path / "raw", made_up_files())
    whole = compile_world(raw, tmp_path / "1", _silent).read_bytes()
    path = raw / "annotations.tar.xz"
    content = lzma.decompress(path.read_bytes())
    path.write_bytes(_xz(content[:700]) + bytes(4) + _xz(content[700:]))
    assert compile_world(raw, tmp_path / "2", _silent).read_bytes() == whole
    path.write_bytes(path.read_bytes()[:-20])
    _refused(tmp_path, r"annotations\.tar\.xz is truncated or damaged")


def test_a_pipe_in_the_place_of_an_archive_is_refused(tmp_path: Path) -> None:
    write_archives(tmp_path / "raw", made_up_files())
    (tmp_path / "raw" / "rooms.tar.xz").unlink()
    os.mkfifo(tmp_path / "raw" / "rooms.tar.xz")
    _refused(tmp_path, r"rooms\.tar\.xz is not a file")
    os.mkfifo(tmp_path / "features.tsv")
    with pytest.raises(ApilError, match=r"features\.tsv is not a file: check the name of --image-features"):
        compile_world(
            write_folder(tmp_path / "other", made_up_files()),
            tmp_path,
            _silent,
            image_features=tmp_path / "features.tsv",
        )


@pytest.mark.parametrize(("size", "sparse"), [(2**70, True), (2**70, False), (-1, True)])
def test_a_member_of_absurd_size_is_refused(tmp_path: Path, size: int, sparse: bool) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("connectivity/scans.txt")
        if sparse:
            member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
            member.size = 512
            tar.addfile(member, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
        else:
            member.pax_headers = {"size": str(size)}
            tar.addfile(member)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "connectivity.tar.xz").write_bytes(_xz(packed.getvalue()))
    _refused(tmp_path, r"connectivity\.tar\.xz (has .* with holes|is truncated or damaged)")


def test_features_that_lie_elsewhere_are_refused(world: World, tmp_path: Path) -> None:
    """Links and tables that read another file than the one that was named, or that claim more than memory."""
    h5py = pytest.importorskip("h5py", reason="needs the extra `images`")
    views = _views(world)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["alpha_a2"] = views["alpha_a2"]
    (tmp_path / "numbers").write_bytes(views["alpha_a2"].tobytes())
    layout = h5py.VirtualLayout((36, 4), np.float32)
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "alpha_a2", (36, 4))
    changes: dict[str, Callable[[Any], object]] = {
        "external link": lambda file: file.__setitem__("alpha_a2", h5py.ExternalLink("other.h5", "/alpha_a2")),
        "to nowhere": lambda file: file.__setitem__("alpha_a2", h5py.ExternalLink("nowhere.h5", "/x")),
        "soft link": lambda file: file.__setitem__("alpha_a2", h5py.SoftLink("/alpha_a1")),
        "group": lambda file: file.create_group("alpha_a2"),
        "numbers of another file": lambda file: file.create_dataset(
            "alpha_a2", (36, 4), np.float32, external=[(str(tmp_path / "numbers"), 0, 576)]
        ),
        "virtual": lambda file: file.create_virtual_dataset("alpha_a2", layout),
        "huge": lambda file: file.create_dataset("alpha_a2", (36, 2**40), np.float32, chunks=(1, 1024)),
    }
    path = tmp_path / "features.h5"
    for what, change in changes.items():
        with h5py.File(path, "w") as file:
            for key, value in views.items():
                if key != "alpha_a2":
                    file[key] = value
            change(file)
        with pytest.raises(ApilError, match=r"alpha_a2 (is a link or no table of its own|holds no table)") as caught:
            _compiled(tmp_path, made_up_files(), image_features=path)
        assert "\n" not in str(caught.value), what
