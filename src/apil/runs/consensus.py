"""How often teachers are right, from nothing but whether they agree with each other (Dawid and Skene 1979)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apil.runs.agreement import groups_of
from apil.runs.stored import StoredAnswers

LEAST = 10
"""Answers in states that others answered as well, from which on a teacher's accuracy is reported."""
_ROUNDS, _ENOUGH, _EDGE = 200, 1e-7, 1e-6


@dataclass(frozen=True)
class Accuracy:
    """A teacher's accuracy as the others' answers suggest it."""

    value: float
    """The probability of answering with the action that is right there."""
    answers: int
    """In states that others answered as well."""


def consensus(answers: StoredAnswers) -> dict[str, Accuracy]:
    """By teacher, of those with enough answers in states that others answered as well; none for continuous actions.

    States are alike where their features are the same. It needs no distances. It takes what most teachers say, each
    weighed by its accuracy, for right: several who make the same mistakes look good.
    """
    if answers.continuous or not len(answers):
        return {}
    shared = of_several(groups_of(answers), answers.identity)
    who, count = answers.identity[shared], len(answers.teachers)
    found = accuracies(groups_of(answers)[shared], who, answers.action[shared], count)
    given = np.bincount(who, minlength=count)
    return {
        name: Accuracy(float(found[k]), int(given[k])) for k, name in enumerate(answers.teachers) if given[k] >= LEAST
    }


def of_several(states: NDArray[np.int64], who: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n] bool: the answers in states that at least two teachers answered."""
    pairs = np.unique(np.stack([states, who], 1), axis=0)
    several: NDArray[np.bool_] = (np.bincount(pairs[:, 0], minlength=int(states.max(initial=-1)) + 1) > 1)[states]
    return several


def accuracies(
    states: NDArray[np.int64], who: NDArray[np.int64], actions: NDArray[np.int64], teachers: int
) -> NDArray[np.float64]:
    """[teachers]: the probability that each is right, NaN of those who say nothing, by expectation maximisation.

    The model of Dawid and Skene with one parameter a teacher: in each state one action is right; teacher k gives it
    with probability q_k, and each of the others with the same rest. `states`, `who` and `actions` are [n] numbers.
    """
    if not len(states):
        return np.full(teachers, np.nan)
    place, label = np.unique(states, return_inverse=True)[1], np.unique(actions, return_inverse=True)[1]
    size, given = int(label.max()) + 1, np.bincount(who, minlength=teachers)
    votes = np.zeros((int(place.max()) + 1, size))
    np.add.at(votes, (place, label), 1.0)
    right = votes / votes.sum(1, keepdims=True)
    quality = np.full(teachers, np.nan)
    for _ in range(_ROUNDS):
        before, prior = quality, right.mean(0)
        sums = np.bincount(who, right[place, label], minlength=teachers)
        quality = np.divide(sums, given, out=np.full(teachers, np.nan), where=given > 0)
        if np.nanmax(np.abs(quality - before), initial=0.0) < _ENOUGH and not np.isnan(before).all():
            break
        sure = quality.clip(_EDGE, 1 - _EDGE)[who]
        wrong = np.log((1 - sure) / max(1, size - 1))
        score = np.log(prior.clip(_EDGE)) + np.bincount(place, wrong)[:, None]
        np.add.at(score, (place, label), np.log(sure) - wrong)
        right = np.exp(score - score.max(1, keepdims=True))
        right /= right.sum(1, keepdims=True)
    return quality
