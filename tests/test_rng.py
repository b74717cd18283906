"""Random numbers: SplitMix64 by the book, the same for a run whatever its company."""

from __future__ import annotations

import hashlib
import math

import pytest
import torch
from torch import Tensor

from apil.rng import Draws, Streams, race, stream_key

_GAMMA = 0x9E3779B97F4A7C15
_WORD = 2**64


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % _WORD
    return word ^ (word >> 31)


def _split_mix(state: int, count: int) -> list[int]:
    """The first outputs of SplitMix64 (Steele, Lea and Flood) from a state."""
    return [_mix((state + place * _GAMMA) % _WORD) for place in range(1, count + 1)]


def _words(seed: int, stream: str, iteration: int, count: int) -> list[int]:
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    state = _mix((int.from_bytes(digest, "little") + (iteration + 1) * _GAMMA) % _WORD)
    return _split_mix(state, count)


def _uniforms(words: list[int]) -> list[float]:
    """Two numbers a word, the low half first, at the middle of 2^23 cells."""
    halves = [half for word in words for half in (word % 2**32, word >> 32)]
    return [((half >> 9) + 0.5) / 2**23 for half in halves]


def _draws(*seeds: int, stream: str = "test", iteration: int = 0) -> Draws:
    return Streams(seeds).draws(stream, iteration)


def _within(frequency: float, chance: float, draws: int) -> bool:
    """A frequency is within 5 standard errors of its chance."""
    return abs(frequency - chance) <= 5 * math.sqrt(chance * (1 - chance) / draws)


def test_this_files_split_mix_gives_the_published_values() -> None:
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert _split_mix(1234567, 5) == published


@pytest.mark.parametrize("seed", [0, 7, -3, 2**70])
@pytest.mark.parametrize("iteration", [0, 12345])
def test_uniform_numbers_are_those_of_split_mix(seed: int, iteration: int) -> None:
    draws = _draws(seed, iteration=iteration)
    words = _words(seed, "test", iteration, 5)
    assert draws.uniform(2, 3)[0].flatten().tolist() == _uniforms(words[:3])
    # The next call goes on after the last whole word: 3 numbers take 2 words, and the spare half is not used.
    assert draws.uniform(3)[0].tolist() == _uniforms(words[3:])[:3]


@pytest.mark.parametrize("method", ["uniform", "exponential"])
def test_a_run_draws_the_same_alone_and_in_any_stack(method: str) -> None:
    def rows(*seeds: int) -> Tensor:
        draws = _draws(*seeds)
        first = getattr(draws, method)(3, 2)
        return torch.cat([first.flatten(1), draws.kept(0.3, 7), getattr(draws, method)(5)], dim=1)

    stack = rows(4, 9, 4, 1)
    assert torch.equal(stack[1:2], rows(9))
    assert torch.equal(stack[0], stack[2])
    assert not torch.equal(stack[0], stack[3])


def test_streams_iterations_and_seeds_give_other_numbers() -> None:
    streams = Streams([5])
    rows = [
        streams.draws("task", 0).uniform(50),
        streams.draws("task", 1).uniform(50),
        streams.draws("model", 0).uniform(50),
        Streams([6]).draws("task", 0).uniform(50),
    ]
    assert len(set(torch.cat(rows).flatten().tolist())) > 195, "at most a few equal numbers among 200 of 2^23"
    assert torch.equal(streams.draws("task", 0).uniform(50), rows[0]), "a stream starts over each time"


def test_a_stream_key_is_the_same_on_every_machine() -> None:
    assert stream_key(3, "task") == int.from_bytes(hashlib.blake2b(b"3/task", digest_size=8).digest(), "little")
    # Seed and name are kept apart.
    assert len({stream_key(1, "1/x"), stream_key(11, "/x"), stream_key(1, "x"), stream_key(11, "x")}) == 4


def test_uniform_numbers_have_the_moments_of_the_open_interval() -> None:
    count = 200_000
    values = _draws(1).uniform(count).double()
    assert 0 < float(values.min()) < 1e-3
    assert 1 - 1e-3 < float(values.max()) < 1
    assert abs(float(values.mean()) - 0.5) < 5 / math.sqrt(12 * count)
    # The variance of (u - 1/2)^2 is 1/180.
    assert abs(float((values - 0.5).square().mean()) - 1 / 12) < 5 / math.sqrt(180 * count)


def test_exponential_numbers_have_mean_and_variance_one() -> None:
    count = 200_000
    values = _draws(2).exponential(count).double()
    assert float(values.min()) > 0
    assert abs(float(values.mean()) - 1) < 5 / math.sqrt(count)
    # The fourth central moment of the exponential distribution is 9.
    assert abs(float((values - 1).square().mean()) - 1) < 5 * math.sqrt(8 / count)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.97])
def test_dropout_masks_drop_at_their_rate_and_keep_the_mean(rate: float) -> None:
    count = 100_001
    mask = _draws(3).kept(rate, count)[0]
    assert mask.shape == (count,)
    kept = mask[mask != 0]
    assert torch.allclose(kept, torch.tensor(1 / (1 - rate)))
    # Rates come in steps of 2^-16.
    rounding = 2.0**-17
    tolerance = 5 * math.sqrt(rate * (1 - rate) / count) + (rounding if rate else 0)
    assert abs(float((mask == 0).double().mean()) - rate) <= tolerance


def test_a_race_is_won_with_the_given_probabilities() -> None:
    count = 100_000
    chances = [0.5, 0.0, 0.3, 0.19, 0.01]
    winners = race(torch.tensor(chances), _draws(4).exponential(count, len(chances)))[0]
    for place, chance in enumerate(chances):
        assert _within(float((winners == place).double().mean()), chance, count)
    assert not bool((winners == 1).any()), "an impossible index never wins"


def test_a_certain_index_always_wins() -> None:
    assert bool((race(torch.tensor([0.0, 0.0, 1.0]), _draws(5).exponential(10_000, 3)) == 2).all())
