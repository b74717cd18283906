"""Walking through houses: what a step does, what is seen, which episodes there are, and who can teach."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import build, make_task
from apil.learning.collect import collect
from apil.r2r.task import R2R, Walk
from apil.rng import Streams
from apil.settings import RunSettings

# Exits in the order of the graph file: a0: a1; a1: a0, a2, a4, a5; a2: a1, a3; a3: a2, a4; a4: a1, a3.
EXITS = 4


@pytest.fixture(scope="module")
def task(made_up_data: Path) -> R2R:
    return R2R(str(made_up_data))


def _name(task: R2R, state: Walk) -> str:
    return task.world.viewpoints[int(state.at)]


def _go(task: R2R, state: Walk, *actions: int) -> Walk:
    for action in actions:
        state = task.step(state, torch.tensor([[action]]))
    return state


def _flags(task: R2R, state: Walk) -> tuple[list[int], list[int]]:
    """The actions whose exits are flagged as leading back, and as leading to where the agent has been."""
    features = task.observe(state).features[0, 0]
    back, seen = features[4 : 4 + EXITS], features[4 + EXITS :]
    assert set(features[4:].tolist()) <= {0.0, 1.0}
    return [1 + i for i in range(EXITS) if back[i]], [1 + i for i in range(EXITS) if seen[i]]


def _first(task: R2R) -> Walk:
    """'Walk past the bed, then STOP.': a0, a1, a2, a3."""
    return task.start(torch.tensor([[0]]))


def test_an_exit_leads_to_its_neighbour_and_the_heading_follows_the_movement(task: R2R) -> None:
    state = _first(task)
    assert (_name(task, state), float(state.heading)) == ("a0", 0.5)
    state = _go(task, state, 1)
    assert _name(task, state) == "a1"
    assert float(state.heading) == pytest.approx(0.0, abs=1e-6)
    state = _go(task, state, 2)
    assert _name(task, state) == "a2"
    # Two metres east, one north, clockwise from north.
    assert float(state.heading) == pytest.approx(math.atan2(2, 1))
    state = _go(task, state, 1)
    assert _name(task, state) == "a1"
    assert float(state.heading) == pytest.approx(math.atan2(2, 1) + math.pi)


def test_who_stops_has_stopped_for_good(task: R2R) -> None:
    walking = _go(task, _first(task), 1, 2)
    assert not task.done(walking).any()
    stopped = _go(task, walking, 0)
    assert task.done(stopped).all()
    later = _go(task, stopped, 1, 2, 0)
    assert task.done(later).all()
    assert _name(task, later) == _name(task, stopped) == "a2"
    assert torch.equal(later.heading, walking.heading)
    assert torch.equal(task.distance(later), task.distance(walking))
    assert torch.equal(task.observe(later).features, task.observe(stopped).features)


def test_episodes_of_a_batch_walk_on_their_own(task: R2R) -> None:
    episodes, actions = torch.tensor([[0, 3, 0], [0, 0, 3]]), torch.tensor([[1, 2, 0], [0, 1, 1]])
    together = task.step(task.start(episodes), actions)
    for run in range(2):
        for number in range(3):
            alone = task.step(task.start(episodes[run, number].view(1, 1)), actions[run, number].view(1, 1))
            assert torch.equal(together.at[run, number], alone.at[0, 0])
            assert torch.equal(together.stopped[run, number], alone.stopped[0, 0])
            assert torch.equal(task.observe(together).features[run, number], task.observe(alone).features[0, 0])


def test_flags_tell_where_the_agent_has_been(task: R2R) -> None:
    state = _first(task)
    assert _flags(task, state) == ([], [])
    state = _go(task, state, 1)
    assert _flags(task, state) == ([1], [1])
    state = _go(task, state, 2)
    assert _flags(task, state) == ([1], [1])
    state = _go(task, state, 1)
    # At a1 again: came from a2, was at a0 before that.
    assert _flags(task, state) == ([2], [1, 2])
    state = _go(task, state, 3)
    assert _name(task, state) == "a4"
    assert _flags(task, state) == ([1], [1])


def test_an_observation_names_instruction_viewpoint_heading_and_last_action(task: R2R) -> None:
    state = _go(task, task.start(torch.tensor([[3]])), 2)
    seen = task.observe(state)
    assert seen.features.shape == (1, 1, task.state_size)
    at = task.world.viewpoints.index("a4")
    assert seen.features[0, 0, :4].tolist() == pytest.approx([3, at, float(state.heading), 2])
    assert seen.valid.tolist() == [[[True, True, True, False, False]]]


def test_the_distance_is_that_along_the_shortest_way(task: R2R) -> None:
    state = _first(task)
    last = math.sqrt(5) + math.sqrt(2)
    assert float(task.distance(state)) == pytest.approx(2 + last)
    assert float(task.distance(_go(task, state, 1))) == pytest.approx(last)
    assert float(task.distance(_go(task, state, 1, 2, 2))) == 0.0
    reference = task.reference(state)
    assert torch.equal(reference.distance, task.distance(state))
    assert reference.actions[0, 0, : int(reference.count)].tolist() == [1]


def test_an_episode_longer_than_the_horizon_can_be_stepped_on(made_up_data: Path) -> None:
    task = R2R(str(made_up_data), horizon=2)
    state = _go(task, _first(task), 1, 2, 2)
    assert _name(task, state) == "a3"


def test_the_literal_reading_gives_teachers_more_to_choose_from(made_up_data: Path, task: R2R) -> None:
    literal = R2R(str(made_up_data), reading="literal")
    at_a1 = _go(task, _first(task), 1)
    assert int(task.reference(at_a1).count) == 2
    assert int(literal.reference(at_a1).count) == 3


def _names(task: R2R, episodes: Tensor) -> list[str]:
    return [task.name_of(int(episode)) for episode in episodes.flatten()]


def test_a_split_holds_its_own_episodes(task: R2R) -> None:
    assert task.split == "train"
    assert _names(task, task.episodes) == ["train 1_0", "train 1_1", "train 1_2", "train 2_0", "train 2_1"]
    unseen = task.of_split("val_unseen")
    assert _names(unseen, unseen.episodes) == ["val_unseen 4_0", "val_unseen 4_1"]
    # 'Go to the bed.' as the agent reads it: words that are too rare in the train split are unknown to it.
    assert unseen.instruction(int(unseen.episodes[0])) == "the bed ."
    assert (task.split, len(task.episodes)) == ("train", 5)
    assert set(task.splits) == {"train", "val_seen", "val_unseen"}


def test_reset_starts_each_episode_of_the_split_equally_often(task: R2R) -> None:
    count = 20_000
    state = task.reset(Streams([0, 1]).draws("task", 0), count)
    chance = 1 / 5
    for run in range(2):
        found = torch.bincount(state.episode[run], minlength=9).double() / count
        assert set(state.episode[run].tolist()) == set(task.episodes.tolist())
        # Five standard deviations of a share.
        assert (found[task.episodes] - chance).abs().max() < 5 * math.sqrt(chance * (1 - chance) / count)
    assert not torch.equal(state.episode[0], state.episode[1])
    unseen = task.of_split("val_unseen").reset(Streams([0]).draws("task", 0), 50)
    assert set(unseen.episode[0].tolist()) == set(task.of_split("val_unseen").episodes.tolist())


def test_a_task_on_given_episodes_starts_just_these_in_their_order(task: R2R) -> None:
    chosen = torch.tensor([4, 0, 4])
    state = task.on(chosen).reset(Streams([0, 1]).draws("task", 0), 3)
    assert state.episode.tolist() == [[4, 0, 4]] * 2
    assert [task.world.viewpoints[at] for at in state.at[1].tolist()] == ["a3", "a0", "a3"]
    # Another split forgets them.
    other = task.on(chosen).of_split("val_unseen").reset(Streams([0]).draws("task", 0), 20)
    assert set(_names(task, other.episode)) == {"val_unseen 4_0", "val_unseen 4_1"}


def test_held_out_scans_are_kept_out_of_training(houses_data: Path) -> None:
    whole, task = R2R(str(houses_data)), R2R(str(houses_data), held_out=1)
    assert task.splits == (*whole.splits, "held_out")
    held_out = task.of_split("held_out")
    assert sorted([*task.episodes.tolist(), *held_out.episodes.tolist()]) == whole.episodes.tolist()
    scans = [set(t.world.scan[t.start(t.episodes.unsqueeze(0)).at].flatten().tolist()) for t in (task, held_out)]
    assert len(scans[1]) == 1
    assert scans[0]
    assert not scans[0] & scans[1]
    drawn = task.reset(Streams([0]).draws("task", 0), 500).episode[0]
    assert set(drawn.tolist()) <= set(task.episodes.tolist())


def test_episodes_without_public_goals_cannot_be_walked(task: R2R) -> None:
    with pytest.raises(ApilError, match="The goals of the split 'test' are not public: use val_unseen"):
        task.of_split("test")


def test_an_unknown_split_is_told_with_the_nearest(task: R2R) -> None:
    with pytest.raises(ApilError, match=r"Unknown split 'val_unsen'\. Did you mean 'val_unseen'\?"):
        task.of_split("val_unsen")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out": 2}, r"held-out is 2: give 0 \(none\) to 1, since there are 2 train scans"),
        ({"held_out": -1}, "held-out is -1: give a whole number from 0"),
        ({"reading": "free"}, "reading is 'free': give closer or literal"),
        ({"horizon": 0}, "horizon is 0: give a number of steps from 1 to 1000"),
        ({"digest": "0123456789ab"}, "is not the data that the run was trained on"),
        ({"helt_out": 1}, r"Unknown option of the task 'r2r' 'helt_out'\. Did you mean 'held_out'\?"),
        ({"data": "nowhere"}, "nowhere does not exist: make it with `apil data r2r"),
    ],
)
def test_bad_options_are_told(houses_data: Path, options: dict[str, str | int], message: str) -> None:
    with pytest.raises(ApilError, match=message):
        make_task(RunSettings.of("r2r", "detm", "dagger", options={"data": str(houses_data), **options}))


def test_a_state_can_be_described_and_looked_at(task: R2R) -> None:
    state = _go(task, _first(task), 1)
    assert task.describe(state, 0, 0) == "viewpoint a1 of alpha, train 1_0"
    cells = task.picture(state, 0, 0).cells
    assert {len(row) for row in cells} == {31}
    assert len(cells) == 15
    # Half a metre a cell, north up: a0 lies 2 m south, a3 2 m east and 2 m north, a4 1 m east and 2 m north.
    assert (cells[7][15], cells[11][15], cells[3][19], cells[3][17], cells[5][16]) == ("A", "o", "G", "o", "o")
    # a2 lies 2 m east and 1 m north.
    assert cells[5][19] == "o"
    assert "".join(cells).count(".") == 15 * 31 - 6


def test_contested_states_are_the_starts_with_several_reference_actions(task: R2R, houses_data: Path) -> None:
    for world in (task, R2R(str(houses_data))):
        count = world.reference(world.start(world.episodes.unsqueeze(0))).count[0]
        expected = world.episodes[count > 1].tolist()[:200]
        assert 0 < len(expected) < len(world.episodes)
        assert world.contested().features[0, :, 0].tolist() == expected


@pytest.mark.parametrize("teacher", ["detm", "rand", "tworand", "twodifdetm", "first+last+uniform"])
def test_any_committee_teaches_and_leads_to_the_goal(made_up_data: Path, teacher: str) -> None:
    sizes: dict[str, str | int] = {"width": 8, "heads": 2, "data": str(made_up_data)}
    agents = build([RunSettings.of("r2r", teacher, "bc", hidden=8, models=2, persona=4, batch=200, options=sizes)])
    visits: dict[int, set[int]] = {}

    def watch(state: Walk, step: object) -> None:
        at_a1 = (state.at == state.at.new_tensor(1)) & ~state.stopped
        taken, who = step.answer.action[at_a1], step.answer.identity[at_a1]  # type: ignore[attr-defined]
        heads_for_a3 = agents.task.reference(state).count[at_a1] == 2
        for action, identity in zip(taken[heads_for_a3].tolist(), who[heads_for_a3].tolist(), strict=True):
            visits.setdefault(identity, set()).add(action)

    episodes = collect(agents, 0, 200, watch=watch)
    assert bool(episodes.success.all())
    assert float(episodes.final_distance.max()) == 0.0
    # From a1 to a3 the ways over a2 (action 2) and a4 (action 3) are equally short.
    either = {2, 3}
    assert (
        visits
        == {
            "detm": {0: {2}},
            "rand": {0: either},
            "tworand": {0: either, 1: either},
            "twodifdetm": {0: {2}, 1: {3}},
            "first+last+uniform": {0: {2}, 1: {3}, 2: either},
        }[teacher]
    )
