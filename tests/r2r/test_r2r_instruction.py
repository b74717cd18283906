"""The agent that follows instructions: it learns what it acts by, plays fair, and keeps episodes and parts apart."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_up_r2r import read_compiled, write_compiled
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import Parts, build
from apil.learning.collect import Agents, collect
from apil.learning.group import take
from apil.learning.rows import RowFormat
from apil.learning.state import weights
from apil.learning.store import new_store
from apil.learning.update import Learner
from apil.optim import optimizer_factory
from apil.r2r.instruction import InstructionModel, InstructionSession
from apil.r2r.options import InstructionSizes
from apil.r2r.scenes import Panoramas, Readings
from apil.r2r.task import R2R
from apil.r2r.world import World
from apil.rng import Streams
from apil.settings import LearnerSettings, ModelSettings, RunSettings
from apil.teachers.committee import committee
from apil.teachers.wrappers import NoisyDistance
from apil.types import Episodes, Lessons, Observation

BATCH = 12
NO_DROPOUT = {
    "branch_dropout": 0.0,
    "word_dropout": 0.0,
    "shown_dropout": 0.0,
    "view_dropout": 0.0,
    "mirror": 0.0,
    "distance_weight": 0.0,
}
SMALL = {"width": 16, "heads": 2}
ALL = 0.9999
"""A rate at which a few hundred draws leave nothing out, for the seeds of these tests."""


@pytest.fixture(scope="module", params=[False, True], ids=["unread", "read"])
def houses_data(request: pytest.FixtureRequest, houses_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated houses, without readings and with."""
    return _with_readings(houses_data, tmp_path_factory.mktemp("read")) if request.param else houses_data


def _with_readings(data: Path, folder: Path) -> Path:
    """The same compiled file with readings at random. Of every fifth episode the mirrored text was not read."""
    about, tensors = read_compiled(data)
    lengths = torch.cat([split.tokens_length for split in World.open(data).splits.values()])
    start = (lengths.cumsum(0) - lengths) * 2
    chance = torch.Generator().manual_seed(5)
    tensors["read_rows"] = torch.randint(-127, 128, (2 * int(lengths.sum()), 10), generator=chance).to(torch.int8)
    tensors["read_scale"] = torch.rand(10, generator=chance) / 60
    tensors["read_start"] = start
    tensors["read_mirrored"] = torch.where(torch.arange(len(start)) % 5 > 0, start + lengths, -1)
    write_compiled(folder / data.name, about, tensors)
    return folder / data.name


def _agents(data: Path, query: str = "dagger", teacher: str = "detm", dropout: float = 0.0, **options: Any) -> Agents:
    options = {"data": str(data), **SMALL, **NO_DROPOUT, **options}
    config = RunSettings.of(
        "r2r", teacher, query, seed=3, hidden=12, persona=6, models=3, batch=BATCH, dropout=dropout, options=options
    )
    return build([config])


def _model(task: R2R, **sizes: Any) -> InstructionModel:
    """As `_agents` builds it, for any task; weights depend on the seed and their names alone."""
    return InstructionModel(
        Streams([3]),
        task,
        teachers=1,
        settings=ModelSettings(hidden=12, persona=6, dropout=0.0, models=3),
        sizes=InstructionSizes(**{**SMALL, **NO_DROPOUT, **sizes}),
    )


def _in_world(data: Path, **changes: Any) -> R2R:
    """The task in the same world but for `changes`."""
    task = R2R(str(data))
    task.world = replace(task.world, **changes)
    return task


def _moved(agents: Agents, task: R2R, **sizes: Any) -> Agents:
    """The same agents in another world; their weights are the same."""
    return replace(agents, task=task, model=_model(task, **sizes))


def _losses(agents: Agents, episodes: Lessons) -> tuple[Tensor, Tensor]:
    return agents.model.losses(episodes, agents.streams.draws("dropout", 0))


def _shuffled(table: Tensor, rows: Tensor, seed: int = 0) -> Tensor:
    """`table` with the chosen rows replaced by values of other rows."""
    other = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))]
    return torch.where(rows.view(-1, *[1] * (table.dim() - 1)), other, table)


# Acting is learning


def test_the_policy_that_acts_is_the_one_that_is_learned(houses_data: Path) -> None:
    agents = _agents(houses_data)
    episodes = collect(agents, 0, BATCH)
    answered = episodes.answered
    assert torch.equal(answered, episodes.live)
    chosen = episodes.mean.gather(-1, episodes.action.unsqueeze(-1)).squeeze(-1)[answered]
    policy, _ = _losses(agents, episodes)
    assert float(policy) == pytest.approx(float(-chosen.log().mean()), abs=1e-5)


@pytest.mark.parametrize("gate", [False, True])
def test_with_two_teachers_the_policy_of_the_one_who_answered_is_learned(houses_data: Path, gate: bool) -> None:
    agents = _agents(houses_data, teacher="twodifdetm", persona_gate=gate)
    model = agents.model
    assert isinstance(model, InstructionModel)
    assert ("gate" in model.policy) == gate
    if gate:
        # A gate that is open lets the state through as it is.
        wide_open = float(_losses(agents, collect(agents, 0, BATCH))[0])
        plain = _agents(houses_data, teacher="twodifdetm")
        assert wide_open == float(_losses(plain, collect(plain, 0, BATCH))[0])
        with torch.no_grad():
            model.policy["gate"].normal_(generator=torch.Generator().manual_seed(1))
    episodes = collect(agents, 0, BATCH)
    assert set(episodes.identity[episodes.answered].tolist()) == {0, 1}
    session = InstructionSession(model, torch.ones(1, model.state_size + model.persona_size), None)
    likelihood = []
    with torch.no_grad():
        for t in range(agents.task.horizon):
            seen = Observation(episodes.features[:, :, t], episodes.valid_actions[:, :, t])
            policies = session.mixture(seen, t)[0][:, 0]
            if t == 0:
                torch.testing.assert_close(policies, model.policies(seen)[0])
            rows = torch.arange(BATCH)
            likelihood.append(policies[rows, episodes.identity[0, :, t], episodes.action[0, :, t]].log())
    of_all = torch.stack(likelihood, 1)
    for answered in (episodes.answered, episodes.answered & (torch.arange(agents.task.horizon) == 0)):
        policy, _ = _losses(agents, replace(episodes, answered=answered))
        assert float(policy) == pytest.approx(float(-of_all[answered[0]].mean()), abs=1e-5)


def test_the_identity_loss_is_that_of_the_recorded_belief(houses_data: Path) -> None:
    agents = _agents(houses_data, teacher="twodifdetm")
    episodes = collect(agents, 0, BATCH)
    believed = episodes.identity_belief.gather(-1, episodes.identity.unsqueeze(-1)).squeeze(-1)[episodes.answered]
    _, identity = _losses(agents, episodes)
    assert float(identity) == pytest.approx(float(-believed.log().mean()), abs=1e-5)


def test_a_distance_that_was_not_told_is_not_learned_from(houses_data: Path) -> None:
    agents = _agents(houses_data, distance_weight=0.2)
    episodes = collect(agents, 0, BATCH)
    bare, _ = _losses(_agents(houses_data), episodes)
    whole, identity = _losses(agents, episodes)
    assert float(whole) > float(bare)
    first = torch.arange(agents.task.horizon) == 0

    def told(at: Tensor) -> Episodes:
        return replace(episodes, distance=torch.where(at, episodes.distance, torch.nan))

    # Those of first steps alone weigh as much as all would; what the others were is forgotten.
    some, same = _losses(agents, told(first))
    alone, _ = _losses(agents, replace(episodes, answered=episodes.answered & first))
    of_first, _ = _losses(_agents(houses_data), replace(episodes, answered=episodes.answered & first))
    assert float(some - bare) == pytest.approx(float(alone - of_first), abs=1e-5)
    assert torch.equal(same, identity)
    none, _ = _losses(agents, told(torch.zeros_like(first)))
    assert torch.equal(none, bare)


def test_an_agent_whose_teacher_leaves_distances_out_learns(houses_data: Path) -> None:
    forgetful = NoisyDistance(committee("detm"), missing=0.5)
    config = RunSettings.of(
        "r2r", "detm", "bc", hidden=12, persona=6, models=3, options={"data": str(houses_data), **SMALL}
    )
    agents = build([config], Parts(teacher=forgetful))
    episodes = collect(agents, 0, BATCH)
    assert bool(episodes.distance[episodes.answered].isnan().any())
    Learner(agents, optimizer_factory("adam", 1e-3)).update(episodes, 0)
    assert all(bool(value.isfinite().all()) for value in weights(agents, 0).values())


def test_stored_episodes_are_learned_from_like_fresh_ones_and_altered_anew(houses_data: Path) -> None:
    agents = _agents(houses_data, teacher="twodifdetm")
    task, learner = agents.task, LearnerSettings(replay=2)
    store = new_store(RowFormat.of(task), task.horizon, learner, agents.streams.seeds)
    # One episode, of which one step was asked about.
    episodes = collect(agents, 0, 1)
    episodes = replace(episodes, answered=episodes.answered & (torch.arange(task.horizon) == 1))
    store.add(episodes, 0, 0, torch.ones(1, dtype=torch.bool))
    lessons, some = store.sample(agents.streams.draws("replay", 0))
    assert bool(some)
    assert lessons.state is None
    assert int(lessons.answered.sum()) == 2
    # What comes after the answer is not needed.
    assert torch.equal(lessons.live, (torch.arange(task.horizon) <= 1).expand_as(lessons.live))
    for fresh, stored in zip(_losses(agents, episodes), _losses(agents, lessons), strict=True):
        torch.testing.assert_close(fresh, stored)
    # Each update has words, views and sides of its own.
    altered = _agents(houses_data, teacher="twodifdetm", mirror=0.5, word_dropout=0.5)
    found = {float(altered.model.losses(lessons, altered.streams.draws("dropout", n))[0]) for n in range(3)}
    assert len(found) == 3


# Fair play


def _same_beliefs(one: Episodes, two: Episodes) -> bool:
    names = ("features", "state", "mean", "identity_belief", "taken", "live")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)


def test_changing_only_the_goals_changes_no_belief(houses_data: Path) -> None:
    agents = _agents(houses_data)
    world = R2R(str(houses_data)).world
    elsewhere = {
        name: replace(split, goal=split.path[:, 1], path=split.path[:, :2]) for name, split in world.splits.items()
    }
    moved = _moved(agents, _in_world(houses_data, splits=elsewhere))
    one, two = collect(agents, 0, BATCH), collect(moved, 0, BATCH)
    assert not torch.equal(one.final_distance, two.final_distance)
    assert not torch.equal(one.action, two.action)
    assert _same_beliefs(one, two)


def _without_the_map(world: World) -> dict[str, Any]:
    """Exits lead to other places, distances and positions are other ones, goals too."""
    exits = world.neighbours
    splits = {name: replace(split, goal=split.start.flip(0)) for name, split in world.splits.items()}
    return {
        "neighbours": torch.where(exits >= 0, (exits + 7) % len(exits), -1),
        "distances": world.distances + 1.0,
        "next_slots": world.next_slots.flip(0),
        "position": world.position.flip(0),
        "splits": splits,
    }


def test_panoramas_do_not_know_the_map_nor_the_goals(houses_data: Path) -> None:
    task = R2R(str(houses_data))
    other = _in_world(houses_data, **_without_the_map(task.world))
    pairs: list[tuple[Any, Any, str]]
    pairs = [(task.panoramas, other.panoramas, field.name) for field in fields(Panoramas) if field.name != "read"]
    if task.panoramas.read is not None:
        pairs += [(task.panoramas.read, other.panoramas.read, field.name) for field in fields(Readings)]
    for ours, theirs, name in pairs:
        one, two = getattr(ours, name), getattr(theirs, name)
        assert torch.equal(one, two) if isinstance(one, Tensor) else one == two, name


def test_the_panorama_of_a_place_not_visited_changes_no_belief(houses_data: Path) -> None:
    agents = _agents(houses_data)
    world = R2R(str(houses_data)).world
    reached = set()
    for iteration in range(4):
        alone = collect(agents, iteration, 1)
        seen = torch.zeros(len(world.viewpoints), dtype=torch.bool)
        seen[alone.features[..., 1].long().flatten()] = True
        reached.add(int(seen.sum()))
        beliefs = []
        for rows in (~seen, seen):
            changed = {name: _shuffled(getattr(world, name), rows) for name in ("captions", "objects", "room")}
            beliefs.append(collect(_moved(agents, _in_world(houses_data, **changed)), iteration, 1))
        assert _same_beliefs(alone, beliefs[0])
        # What was visited does matter: the comparison can fail.
        assert not _same_beliefs(alone, beliefs[1])
    assert max(reached) > 1


# Parts and episodes are kept apart


def test_identity_and_query_losses_do_not_reach_the_policy(houses_data: Path) -> None:
    agents = _agents(houses_data, query="apil", teacher="twodifdetm", dropout=0.2)
    episodes = collect(_agents(houses_data, query="bc", teacher="twodifdetm"), 0, BATCH)
    # It makes all weights leaves that gradients can reach.
    Learner(agents, optimizer_factory("adam", 1e-3))
    group = agents.queries[0]
    asking = group.part.loss(take(episodes, group.runs))
    assert asking is not None
    terms = dict(zip(("policy", "identity"), _losses(agents, episodes), strict=True)) | {"query": asking.loss}
    own = {"policy": agents.model.policy, "identity": agents.model.identity, "query": group.part.parameters}
    for name, loss in terms.items():
        for part, parameters in own.items():
            found = torch.autograd.grad(loss.sum(), list(parameters.values()), retain_graph=True, allow_unused=True)
            reached = [gradient is not None and bool(gradient.any()) for gradient in found]
            assert any(reached) == (part == name), (name, part)


def test_actions_that_are_not_there_have_no_chance(houses_data: Path) -> None:
    episodes = collect(_agents(houses_data, dropout=0.2), 0, BATCH)
    assert bool((~episodes.valid_actions).any())
    assert float(episodes.mean[~episodes.valid_actions].max()) == 0.0
    torch.testing.assert_close(episodes.mean.sum(-1), torch.ones_like(episodes.mean.sum(-1)))
    taken = episodes.valid_actions.gather(-1, episodes.taken.unsqueeze(-1)).squeeze(-1)
    assert bool(taken[episodes.live].all())


def test_a_belief_does_not_depend_on_the_other_episodes_of_the_batch(houses_data: Path) -> None:
    agents = _agents(houses_data, teacher="twodifdetm", dropout=0.2)
    horizon, streams = agents.task.horizon, agents.streams
    episodes = collect(agents, 0, BATCH)
    lengths = (R2R(str(houses_data)).panoramas.tokens[episodes.features[0, :, 0, 0].long()] > 0).sum(1)
    assert len(set(lengths.tolist())) > 1
    for number in (int(lengths.argmin()), int(lengths.argmax())):
        session = agents.model.begin(streams.draws("model", 0), streams.draws("identity", 0), 1, horizon)
        with torch.inference_mode():
            for t in range(int(episodes.live[0, number].sum())):
                seen = Observation(
                    episodes.features[:, number, t].unsqueeze(1), episodes.valid_actions[:, number, t].unsqueeze(1)
                )
                belief = session.belief(seen, t, horizon)
                torch.testing.assert_close(belief.mean[0, 0], episodes.mean[0, number, t], atol=1e-5, rtol=0)
                torch.testing.assert_close(belief.state[0, 0], episodes.state[0, number, t], atol=1e-5, rtol=0)


def test_the_loss_of_a_batch_is_the_mean_over_its_episodes_asked_steps(houses_data: Path) -> None:
    agents = _agents(houses_data, teacher="twodifdetm")
    episodes = collect(agents, 0, BATCH)
    whole = torch.stack(_losses(agents, episodes))
    total, count = torch.zeros(2, 1), 0
    for number in range(BATCH):
        one = {
            field.name: getattr(episodes, field.name)[:, number : number + 1]
            for field in fields(Episodes)
            if field.name != "uncertainty"
        }
        own = int(one["answered"].sum())
        total = total + own * torch.stack(_losses(agents, replace(episodes, **one)))
        count += own
    torch.testing.assert_close(whole, total / count, atol=1e-5, rtol=0)


# In a mirror, and in the dark


def _of_each_episode(model: InstructionModel, episodes: Episodes, mirrored: bool = False) -> Tensor:
    """[n]: the policy loss over the steps of each episode alone."""
    found = []
    if mirrored:
        features = episodes.features.clone()
        features[..., 2] = -features[..., 2]
        episodes = replace(episodes, features=features)
    for number in range(BATCH):
        own = episodes.answered & (torch.arange(BATCH) == number).view(1, -1, 1)
        found.append(model.losses(replace(episodes, answered=own), Streams([3]).draws("dropout", 0))[0])
    return torch.cat(found).detach()


def _other_side(task: R2R) -> R2R:
    """The task in a world of which left and right have changed places: made of tables, without the model's help."""
    see, back = task.panoramas, torch.tensor([0, 7, 6, 5, 4, 3, 2, 1])
    words = {word: place for place, word in enumerate(task.world.vocabulary)}
    swapped = torch.arange(see.words)
    swapped[[words["left"], words["right"]]] = swapped[[words["right"], words["left"]]]
    assert see.captions is not None
    assert see.objects is not None
    other = replace(
        see,
        tokens=swapped[see.tokens],
        heading=-see.heading % (2 * torch.pi),
        captions=see.captions[:, back],
        objects=see.objects[:, back],
        read=None if see.read is None else replace(see.read, start=see.read.mirrored),
    )
    mirrored = R2R.__new__(R2R)
    mirrored.__dict__.update(task.__dict__ | {"panoramas": other})
    return mirrored


def test_an_episode_in_a_mirror_is_that_of_a_mirrored_world(houses_data: Path) -> None:
    agents = _agents(houses_data)
    task = R2R(str(houses_data))
    episodes = collect(agents, 0, BATCH)
    plain = _of_each_episode(_model(task), episodes)
    read = task.panoramas.read
    known = torch.ones(BATCH, dtype=torch.bool)
    if read is not None:
        known = read.mirrored[episodes.features[0, :, 0, 0].long()] >= 0
        assert 0 < int(known.sum()) < BATCH
        # What the mirrored world reads of the others is not looked at.
        read = replace(read, mirrored=read.mirrored.clamp_min(0))
    beyond = R2R(str(houses_data))
    beyond.__dict__["panoramas"] = replace(task.panoramas, read=read)
    mirrored = _of_each_episode(_model(_other_side(beyond)), episodes, mirrored=True)
    assert float((mirrored - plain).abs().min()) > 1e-5
    every = _of_each_episode(_model(task, mirror=ALL), episodes)
    torch.testing.assert_close(every, torch.where(known, mirrored, plain), atol=1e-5, rtol=0)
    some = _of_each_episode(_model(task, mirror=0.5), episodes)
    stays = (some - plain).abs() < (some - mirrored).abs()
    assert 0 < int(stays[known].sum()) < int(known.sum())
    torch.testing.assert_close(some, torch.where(stays, plain, mirrored), atol=1e-5, rtol=0)


def test_a_word_that_is_left_out_is_not_read_either(houses_data: Path) -> None:
    task = R2R(str(houses_data))
    see = task.panoramas
    if see.read is None:
        return
    episodes = collect(_agents(houses_data), 0, BATCH)
    chance = torch.Generator().manual_seed(9)
    rows = see.read.rows.clone()
    for start, tokens in zip(see.read.start.tolist(), see.tokens, strict=True):
        for place in (tokens > 2).nonzero().flatten().tolist():
            rows[start + place] = torch.randint(-127, 128, (10,), generator=chance).to(torch.int8)
    other = R2R(str(houses_data))
    other.__dict__["panoramas"] = replace(see, read=replace(see.read, rows=rows))
    for rate, same in ((ALL, True), (0.0, False)):
        one, two = (_of_each_episode(_model(world, word_dropout=rate), episodes) for world in (task, other))
        assert torch.equal(one, two) == same


# What can be seen


@pytest.mark.parametrize("features", ["geometry", "captions", "objects", "rooms", "captions,rooms", "geometry,objects"])
def test_an_agent_learns_from_any_subset_of_features(houses_data: Path, features: str) -> None:
    agents = _agents(houses_data, features=features, branch_dropout=0.1, word_dropout=0.1, view_dropout=0.3)
    shown = features.split(",")
    for name in ("captions", "objects", "rooms"):
        assert any(key.split(".")[0] == name for key in agents.model.policy) == (name in shown)
    before = {name: value.clone() for name, value in weights(agents, 0).items()}
    Learner(agents, optimizer_factory("adam", 1e-3)).update(collect(agents, 0, BATCH), 0)
    changed = {name for name, value in weights(agents, 0).items() if not torch.equal(value, before[name])}
    # Generated houses come without word vectors; and who is shown no words has none to look for.
    wordless = not {"captions", "objects"} & set(shown)
    idle = ("policy.glove.", *(("policy.look.", "policy.sought.", "policy.match") if wordless else ()))
    assert {name for name in before if name.startswith("policy.") and not name.startswith(idle)} <= changed


@pytest.mark.parametrize("feature", ["captions", "objects", "rooms"])
def test_what_an_agent_is_not_to_see_changes_no_belief(houses_data: Path, feature: str) -> None:
    table = {"rooms": "room"}.get(feature, feature)
    world = R2R(str(houses_data)).world
    everywhere = torch.ones(len(world.viewpoints), dtype=torch.bool)
    changed = _in_world(houses_data, **{table: _shuffled(getattr(world, table), everywhere)})
    others = ",".join(name for name in ("captions", "objects", "rooms") if name != feature)
    for features, same in ((others, True), (feature, False)):
        agents = _agents(houses_data, features=features)
        one, two = collect(agents, 0, BATCH), collect(_moved(agents, changed, features=features), 0, BATCH)
        assert _same_beliefs(one, two) == same


def test_image_features_are_seen_and_learned_from(houses_data: Path) -> None:
    agents = _agents(houses_data)
    places = len(R2R(str(houses_data)).world.viewpoints)
    found = []
    for seed in (1, 2):
        images = torch.rand(places, 8, 10, generator=torch.Generator().manual_seed(seed)).half()
        own = _moved(agents, _in_world(houses_data, images=images), features="images")
        found.append(collect(own, 0, BATCH))
        before = own.model.policy["images.w"].clone()
        Learner(own, optimizer_factory("adam", 1e-3)).update(found[-1], 0)
        assert not torch.equal(before, own.model.policy["images.w"])
    assert not torch.equal(found[0].mean[:, :, 0], found[1].mean[:, :, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mirror": 1.0}, "mirror is 1: give a rate from 0 to below 1"),
        ({"features": "captions,smell"}, "There is no feature 'smell': give some of geometry, captions, objects, "),
        ({"features": ""}, "There is no feature ''"),
        ({"width": 15}, "width 15 is not a multiple of heads 2"),
        ({"heads": 0}, "heads is 0: give a whole number from 1"),
        ({"word_dropout": 1.0}, "word-dropout is 1: give a rate from 0 to below 1"),
        ({"view_dropout": -0.1}, "view-dropout is -0.1: give a rate from 0 to below 1"),
        ({"width": "abc"}, "width is 'abc': give a whole number"),
        ({"width": True}, "width is True: give a whole number"),
        ({"width": 16.0}, "width is 16: give a whole number"),
        ({"mirror": "x"}, "mirror is 'x': give a rate"),
        ({"mirror": 10**400}, "options is 1000"),
        ({"distance_weight": float("nan")}, "options is nan: give plain values"),
        ({"distance_weight": -3}, "distance-weight is -3: give a number from 0 "),
        ({"features": 3}, "features is 3: give printable text"),
    ],
)
def test_sizes_that_cannot_be_are_told(houses_data: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ApilError, match=message):
        _agents(houses_data, **options)
