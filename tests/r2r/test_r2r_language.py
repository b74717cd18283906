"""The language model that reads instructions: against torch's own encoder, and from its files to the compiled ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_bert import HIDDEN, LONGEST, PIECES, Reference, write_bert
from made_up_r2r import Files, made_up_files, write_archives, write_folder
from numpy.typing import NDArray

from apil.errors import ApilError
from apil.r2r import language
from apil.r2r.compile import compile_world
from apil.r2r.language import LanguageModel, model_folder, to_bytes
from apil.r2r.scenes import Readings
from apil.r2r.text import mirror_word, mirror_words, tokenize
from apil.r2r.world import World


def _silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return LanguageModel.open(folder)


def _named(model: LanguageModel, word: str) -> list[str]:
    return [PIECES[number] for number in model.split(word)]


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("walk", ["walk"]),
        ("walking", ["walk", "##ing"]),
        ("walls", ["wal", "##l", "##s"]),
        ("leftmost", ["left", "##most"]),
        ("beds", ["bed", "##s"]),
        ("cab", ["c", "##a", "##b"]),
        (".", ["."]),
        ("zebra", ["[UNK]"]),
        ("bedzz", ["[UNK]"]),
        ("ü", ["[UNK]"]),
    ],
)
def test_a_word_is_split_into_the_longest_pieces(model: LanguageModel, word: str, pieces: list[str]) -> None:
    assert _named(model, word) == pieces


@pytest.mark.parametrize(("layers", "prefix"), [(2, ""), (2, "bert."), (5, "")])
def test_the_model_is_torchs_encoder_as_far_as_it_is_used(tmp_path: Path, layers: int, prefix: str) -> None:
    model = LanguageModel.open(write_bert(tmp_path / "bert", layers, prefix))
    reference = Reference(layers, used=min(layers, 4))
    chance = np.random.default_rng(0)
    texts = [chance.integers(4, len(PIECES), size).tolist() for size in (1, 5, 9, LONGEST)]
    ids = torch.tensor([text + [0] * (LONGEST - len(text)) for text in texts])
    padded = model.forward(ids, torch.tensor([[at < len(text) for at in range(LONGEST)] for text in texts]))
    for row, text in zip(padded, texts, strict=True):
        expected = reference(text)
        alone = model.forward(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool))[0]
        torch.testing.assert_close(alone.double(), expected, atol=2e-5, rtol=0)
        torch.testing.assert_close(row[: len(text)].double(), expected, atol=2e-5, rtol=0)


def _expected(model: LanguageModel, reference: Reference, words: list[str]) -> NDArray[np.float64]:
    """[words + 1, hidden]: means over pieces, from the reference; zero for words past the longest text."""
    parts = [[PIECES.index(piece) for piece in _named(model, word)] for word in words]
    ids = [PIECES.index("[CLS]"), *(piece for part in parts for piece in part), PIECES.index("[SEP]")]
    rows = reference(ids[:LONGEST]).numpy()[1:]
    found, at = [], 0
    for size in [*(len(part) for part in parts), 1]:
        own = rows[at : at + size]
        found.append(own.mean(0) if len(own) else np.zeros(HIDDEN))
        at += size
    return np.stack(found)


TEXTS = ["walk past the beds .", "stop", "", "turn left , turn right , walking past the leftmost zebra", "cab " * 9]


def test_texts_are_read_word_by_word_and_shortest_first(model: LanguageModel) -> None:
    reference = Reference(2, used=2)
    texts = [text.split() for text in TEXTS]
    found = dict(model.read(texts))
    assert [number for number, _ in model.read(texts)] == [2, 1, 0, 3, 4]
    for number, words in enumerate(texts):
        expected = _expected(model, reference, words)
        assert found[number].shape == expected.shape
        np.testing.assert_allclose(found[number].numpy(), expected, atol=2e-5)
    # Nine cabs are longer than the model reads.
    assert not found[4][8:].any()


def test_many_texts_are_read_as_one_by_one(model: LanguageModel) -> None:
    texts = [text.split() for text in TEXTS]
    together = dict(model.read(texts))
    for number, text in enumerate(texts):
        ((_, alone),) = model.read([text])
        torch.testing.assert_close(together[number], alone, atol=2e-5, rtol=0)


# Mirrored words


def test_a_mirror_swaps_sides_and_twice_is_none() -> None:
    vocabulary = ["<pad>", "<unk>", "<eos>", "left", "door", "right", "rightmost", "clockwise", "leftmost"]
    mirrored = mirror_words(vocabulary)
    assert mirrored == [0, 1, 2, 5, 4, 3, 8, 7, 6]
    assert [mirrored[place] for place in mirrored] == list(range(len(vocabulary)))
    # A word whose other side is not in the vocabulary stays.
    assert mirror_words(["<pad>", "<unk>", "<eos>", "left"]) == [0, 1, 2, 3]
    assert mirror_word(mirror_word("left")) == "left"


# Compiled


def _files() -> Files:
    """Enough text for its main directions: half of it has sides."""
    chance = np.random.default_rng(1)
    words = ["walk", "past", "the", "bed", "door", "stop", "left", "right", "turning", "leftmost", ".", "cab", "zebra"]
    files = made_up_files()
    for path in files["annotations/R2R_train.json"]:
        more = [" ".join(chance.choice(words, size)) for size in chance.integers(1, 15, 30)]
        path["instructions"] = [*path["instructions"], "turn left at the door", *more]
    return files


@pytest.fixture(scope="module")
def compiled(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compiled")
    return compile_world(write_folder(place / "raw", _files()), place / "out", _silent, text_model=str(folder))


def _readings(world: World) -> Readings:
    assert world.read is not None
    return world.read


def _texts() -> list[tuple[str, list[str]]]:
    """The split and the words of every episode, in the order of the splits."""
    files = _files()
    return [
        (split, tokenize(text))
        for split in ("train", "val_seen", "val_unseen", "test")
        for path in files[f"annotations/R2R_{split}.json"]
        for text in path["instructions"]
    ]


def _components(sample: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """`rows` along the principal components of the `sample`, which has a mean square of 1 along all of them."""
    middle = sample.mean(0)
    _, _, axes = np.linalg.svd(sample - middle)
    unit = np.sqrt(np.square((sample - middle) @ axes.T).mean())
    found: NDArray[np.float64] = (rows - middle) @ axes.T / unit
    return found


def test_readings_are_the_main_components_of_what_the_model_makes_of_words(
    model: LanguageModel, compiled: Path
) -> None:
    world = World.open(compiled)
    read = _readings(world)
    assert "readings" in world.features
    reference = Reference(2, used=2)
    # Train is read and then read in a mirror, text by text; every tenth of these texts is of the sample.
    every: list[NDArray[np.float64]] = []
    plain, mirrored = {}, {}
    for episode, (split, words) in enumerate(_texts()):
        if split != "test":
            plain[episode] = len(every)
            every.append(_expected(model, reference, words))
        if split == "train":
            mirrored[episode] = len(every)
            swap = {"left": "right", "right": "left", "leftmost": "rightmost"}
            every.append(_expected(model, reference, [swap.get(word, word) for word in words]))
    expected = [_components(np.concatenate(every[::10]), rows) for rows in every]
    kept = read.rows.double().numpy() * read.scale.double().numpy()
    sign = np.sign((np.concatenate(expected) * kept).sum(0))
    half = read.scale.double().numpy() * 0.5 + 1e-3
    for starts, numbers in ((read.start, plain), (read.mirrored, mirrored)):
        assert [at for at, start in enumerate(starts.tolist()) if start >= 0] == list(numbers)
        for episode, number in numbers.items():
            rows = expected[number] * sign
            start = int(starts[episode])
            assert (np.abs(kept[start : start + len(rows)] - rows) <= half).all()
    assert set(read.start[[split == "test" for split, _ in _texts()]].tolist()) == {-1}


def test_a_text_without_sides_reads_the_same_in_a_mirror(compiled: Path) -> None:
    read = _readings(World.open(compiled))
    checked = 0
    for episode, (split, words) in enumerate(_texts()):
        if split == "train" and not {"left", "right", "leftmost"} & set(words):
            start, mirrored, size = int(read.start[episode]), int(read.mirrored[episode]), len(words) + 1
            difference = (read.rows[start : start + size].int() - read.rows[mirrored : mirrored + size].int()).abs()
            # Read with other texts at its side, it may round to the next whole number.
            assert int(difference.max()) <= 1
            checked += 1
    assert checked > 5


def test_a_direction_in_which_words_do_not_vary_is_zero(compiled: Path) -> None:
    read = _readings(World.open(compiled))
    # Layer-normalised rows sum to a constant, so they vary in one direction less than they have numbers.
    assert read.rows.shape[1] == HIDDEN
    assert float(read.scale[-1]) == 0
    assert not read.rows[:, -1].any()
    assert read.rows[:, :-1].int().abs().amax(0).tolist() == [127] * (HIDDEN - 1)


def test_rounding_noise_moves_a_kept_number_by_one_at_most() -> None:
    chance = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 5, generator=chance) * torch.tensor([1.0, 0.5, 0.02, 0.005, 0.0])
    (one, scale), (other, _) = (to_bytes(rows + 1e-6 * torch.randn(300, 5, generator=chance)) for _ in range(2))
    assert int((one.int() - other.int()).abs().max()) <= 1
    assert bool(((one * scale - rows).abs() <= scale / 2 + 1e-5).all())
    assert not to_bytes(torch.zeros(3, 2))[0].any()


def test_an_episode_has_a_row_for_each_of_its_tokens(compiled: Path) -> None:
    world = World.open(compiled)
    read = _readings(world)
    lengths = torch.cat([split.tokens_length for split in world.splits.values()])
    spans = [
        (start, start + length)
        for starts in (read.start, read.mirrored)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        if start >= 0
    ]
    # Side by side, without gaps.
    assert sorted(spans)[0][0] == 0
    assert [end for _, end in sorted(spans)] == [*(start for start, _ in sorted(spans)[1:]), len(read.rows)]


def test_the_same_files_give_the_same_bytes(folder: Path, compiled: Path, tmp_path: Path) -> None:
    raw = write_archives(tmp_path / "raw", _files())
    again = compile_world(raw, tmp_path / "out", _silent, text_model=str(folder))
    ours, theirs = World.open(again), World.open(compiled)
    for name in ("rows", "scale", "start", "mirrored"):
        assert torch.equal(getattr(_readings(ours), name), getattr(_readings(theirs), name))
    whole = write_folder(tmp_path / "folder", _files())
    once = compile_world(whole, tmp_path / "once", _silent, text_model=str(folder)).read_bytes()
    assert compiled.read_bytes() == once


def test_who_reads_is_part_of_the_datas_name(folder: Path, tmp_path: Path) -> None:
    raw = write_folder(tmp_path / "raw", made_up_files())
    digests = set()
    for text_model in (None, str(folder), str(write_bert(tmp_path / "other", layers=3))):
        world = World.open(compile_world(raw, tmp_path / "out", _silent, text_model=text_model))
        assert (world.read is None) == (text_model is None)
        digests.add(world.digest)
    assert len(digests) == 3


# Faults


def test_an_installed_model_is_found_by_its_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_small_bert"
    write_bert(package / "model")
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(language.INSTALLED, "small", "a_small_bert")
    assert model_folder("small") == package / "model"
    assert model_folder(str(folder)) == folder
    assert LanguageModel.open(model_folder("small")).sha256 == LanguageModel.open(folder).sha256


def _no_end(folder: Path) -> None:
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n")


def _no_unknown(folder: Path) -> None:
    file = folder / "vocab.txt"
    file.write_text(file.read_text().replace("[UNK]", "[OTHER]"))


def _more_words(folder: Path) -> None:
    file = folder / "vocab.txt"
    file.write_text(file.read_text() + "zebra\n")


def _longer_texts(folder: Path) -> None:
    (folder / "config.json").write_text(
        '{"num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 25}'
    )


def _half_the_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _no_heads(folder: Path) -> None:
    (folder / "config.json").write_text('{"num_hidden_layers": 2, "max_position_embeddings": 24}')


def _other_heads(folder: Path) -> None:
    (folder / "config.json").write_text(
        '{"num_attention_heads": 3, "num_hidden_layers": 2, "max_position_embeddings": 24}'
    )


def _more_layers(folder: Path) -> None:
    (folder / "config.json").write_text(
        '{"num_attention_heads": 2, "num_hidden_layers": 4, "max_position_embeddings": 24}'
    )


def _half_a_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"num_attention_heads": 2, ')


def _a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def _bytes_for_text(folder: Path) -> None:
    (folder / "vocab.txt").write_bytes(b"\xff\xfe\x00")


DAMAGES: list[Any] = [
    _no_end, _no_unknown, _more_words, _longer_texts, _half_the_weights, _no_heads, _other_heads, _more_layers,
    _half_a_json, _a_list, _bytes_for_text,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.__name__.strip("_") for damage in DAMAGES])
def test_a_damaged_model_is_told_in_one_line(tmp_path: Path, damage: Any) -> None:
    folder = write_bert(tmp_path / "bert")
    damage(folder)
    with pytest.raises(ApilError) as caught:
        LanguageModel.open(folder)
    told = str(caught.value)
    assert told.startswith(f"{folder} is damaged or holds no BERT encoder (")
    assert told.endswith("): copy or download it again.")
    assert "\n" not in told
