from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor, nn
from toy_environments import Corridor, Shows

from apil.errors import ApilError
from apil.rng import Streams
from apil.tasks import from_gymnasium
from apil.tasks.gymnasium import Episode, GymnasiumTask
from apil.tasks.gymnasium.layout import Layout, element

SPACES: dict[str, spaces.Space[Any]] = {
    "bounded": spaces.Box(-2.0, 6.0, (3,), np.float32),
    "free": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "uneven": spaces.Box(
        np.array([-np.inf, -np.inf, -1, -np.inf], np.float32), np.array([np.inf, np.inf, 1, np.inf], np.float32)
    ),
    "choice": spaces.Discrete(4, start=-1),
    "choices": spaces.MultiDiscrete([3, 2], start=[1, 5]),
    "flags": spaces.MultiBinary(3),
    "image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
}


def _draws(runs: int = 2, iteration: int = 0, seed: int = 0) -> Any:
    return Streams(range(seed, seed + runs)).draws("task", iteration)


def _corridors(**settings: Any) -> GymnasiumTask:
    return from_gymnasium(
        lambda: Corridor(**settings), distance=lambda env: float(env.unwrapped.length - env.unwrapped.place), horizon=8
    )


def test_a_corridor_is_walked_with_the_names_its_actions_have() -> None:
    task = _corridors(length=3)
    state = task.reset(_draws(), 2)
    walk = torch.tensor([[1, 0], [1, 1]])  # three of the four walk on, one stands still
    seen = []
    for _ in range(4):
        seen.append(task.distance(state))
        state = task.step(state, walk)
    assert torch.stack(seen).tolist() == [[[3, 3], [3, 3]], [[2, 3], [2, 2]], [[1, 3], [1, 1]], [[0, 3], [0, 0]]]
    assert task.done(state).tolist() == [[True, False], [True, True]]
    assert task.distance(state).tolist() == [[0, 3], [0, 0]]
    task.close()


def test_an_episode_that_has_ended_takes_no_further_step_and_keeps_what_it_showed() -> None:
    lengths = {0: 2, 1: 5, 2: 3}
    made: list[Corridor] = []

    def make() -> Corridor:
        made.append(Corridor(length=100, ends=lengths.get(len(made) - 1)))
        return made[-1]

    task = from_gymnasium(make, distance="success", horizon=7)
    for iteration in range(2):
        state = task.reset(_draws(1, iteration), 3)
        live = torch.zeros(3)
        for _ in range(task.horizon):
            live += ~task.done(state)[0]
            state = task.step(state, torch.ones(1, 3, dtype=torch.long))
        assert live.tolist() == [2, 5, 3]
        assert (task.observe(state).features[0, :, 0] * 50 + 50).tolist() == pytest.approx([2, 5, 3], abs=1e-4)
    # The first one made only told its spaces; the others took exactly their steps, in both iterations.
    assert [len(env.actions) for env in made] == [0, 4, 10, 6]


@pytest.mark.parametrize("name", list(SPACES))
def test_features_of_each_kind_of_space(name: str) -> None:
    space = SPACES[name]
    space.seed(0)
    layout = Layout(space, "toy")
    shown = [space.sample() for _ in range(4)]
    features = layout.features(np.stack(shown))
    for row, value in zip(features, shown, strict=True):
        np.testing.assert_allclose(row, _by_hand(name, value), rtol=1e-5, atol=1e-6)


def _by_hand(name: str, value: Any) -> Any:
    flat = np.asarray(value, np.float64).flatten()
    if name == "bounded":
        return (flat - 2.0) / 4.0
    if name == "free":
        return np.sign(flat) * np.log(1 + np.abs(flat))
    if name == "uneven":
        return np.where([True, True, False, True], np.sign(flat) * np.log(1 + np.abs(flat)), flat)
    if name == "choice":
        return np.eye(4)[int(value) + 1]
    if name == "choices":
        return np.concatenate([np.eye(3)[value[0] - 1], np.eye(2)[value[1] - 5]])
    return flat if name == "flags" else np.moveaxis(value, -1, 0).flatten() / 255


def test_parts_of_a_dict_come_back_from_the_features() -> None:
    space = spaces.Dict({**SPACES, "inner": spaces.Dict({"choice": spaces.Discrete(3)})})
    space.seed(1)
    shown = [space.sample() for _ in range(3)]
    empty: Any = create_empty_array(space, 3)
    batch: Any = concatenate(space, shown, empty)
    layout = Layout(space, "toy")
    features = torch.from_numpy(layout.features(batch))
    parts = layout.structured(features)
    assert isinstance(parts, dict)
    assert set(parts) == {*SPACES, "inner.choice"}
    for place, value in enumerate(shown):
        torch.testing.assert_close(parts["image"][place] * 255, torch.tensor(value["image"]).permute(2, 0, 1).float())
        torch.testing.assert_close(parts["bounded"][place] * 4 + 2, torch.tensor(value["bounded"]))
        assert int(parts["inner.choice"][place].argmax()) == value["inner"]["choice"]
        assert int(parts["choice"][place].argmax()) - 1 == value["choice"]
    again = torch.cat([parts[field.name].flatten(1) for field in layout.fields], 1)
    assert torch.equal(again, features)
    back = element(batch, space, 1)
    assert space.contains(back)
    np.testing.assert_array_equal(back["choices"], shown[1]["choices"])


@pytest.mark.parametrize(
    ("space", "shown", "told"),
    [
        (
            spaces.Box(0.0, 1.0, (2,), np.float32),
            np.array([0.5, np.inf], np.float32),
            r"\[0.5 inf\] .*not in its space",
        ),
        (spaces.Box(0.0, 1.0, (2,), np.float32), np.array([0.5], np.float32), r"shape \(1,\)"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), np.array([np.nan], np.float32), "nan"),
        (spaces.Discrete(3), np.int64(3), "not in its space Discrete"),
    ],
)
@pytest.mark.parametrize("late", [0, 1, 15])
def test_an_observation_that_does_not_fit_is_shown(space: spaces.Space[Any], shown: Any, told: str, late: int) -> None:
    """At a reset, at the first step, and later, when observations are checked as a batch."""
    good = np.zeros(space.shape, space.dtype) if space.shape else np.int64(0)

    def show(env: Shows) -> Any:
        return shown if env.steps == late else good

    task = from_gymnasium(lambda: Shows(space, show), distance=lambda env: 1.0, horizon=20, name="toy")

    def walk() -> None:
        state = task.reset(_draws(1), 1)
        for _ in range(task.horizon):
            state = task.step(state, torch.zeros(1, 1, dtype=torch.long))

    with pytest.raises(ApilError, match=rf"(?s)environment 'toy' gave the observation.*{told}"):
        walk()


@pytest.mark.parametrize("distance", [-1.0, math.nan, "far", None])
def test_what_is_not_a_distance_is_refused(distance: Any) -> None:
    task = from_gymnasium(Corridor, distance=lambda env: distance, horizon=3, name="hall")
    with pytest.raises(ApilError, match=r"distance of the environment 'hall' is .* at step 0: expected a number"):
        task.reset(_draws(1), 1)


def test_distances_derived_from_success_survival_and_return() -> None:
    def walk(distance: Any, actions: list[int], ends: int | None = None, **more: Any) -> list[float]:
        task = from_gymnasium(lambda: Corridor(length=2, ends=ends), distance=distance, horizon=4, **more)
        state = task.reset(_draws(1), 1)
        told = [float(task.distance(state))]
        for action in actions:
            state = task.step(state, torch.tensor([[action]]))
            told.append(float(task.distance(state)))
        return told

    assert walk("success", [1, 0, 1]) == [1, 1, 1, 0]
    assert walk("steps", [0, 0, 0, 0]) == [4, 3, 2, 1, 0]
    assert walk("steps", [1, 1, 0]) == [4, 3, 2, 2]  # it terminated with two steps to go
    assert walk("steps", [0, 0], ends=2) == [4, 3, 0]  # it was truncated: it lasted
    assert walk("return", [1, 1], best_return=1.0) == [1, 1, 0]
    with pytest.raises(ApilError, match="needs best_return"):
        walk("return", [])
    with pytest.raises(ApilError, match="Unknown distance 'closeness'"):
        walk("closeness", [])


def test_valid_actions_come_from_a_function_or_from_info() -> None:
    class Masked(Corridor):
        def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
            return super().reset(**given)[0], {"action_mask": np.array([0, 1], np.int8)}

    task = from_gymnasium(Masked, distance="success", horizon=3)
    assert task.observe(task.reset(_draws(1), 1)).valid.tolist() == [[[False, True]]]
    task = from_gymnasium(
        Corridor, distance="success", horizon=3, valid_actions=lambda env: [env.unwrapped.place == 0, True]
    )
    state = task.reset(_draws(1), 1)
    assert task.observe(state).valid.tolist() == [[[True, True]]]
    assert task.observe(task.step(state, torch.ones(1, 1).long())).valid.tolist() == [[[False, True]]]
    task = from_gymnasium(
        Corridor, distance="success", horizon=3, valid_actions=lambda env: [False, False], name="hall"
    )
    with pytest.raises(ApilError, match=r"valid actions of the environment 'hall' are \[False, False\]"):
        task.reset(_draws(1), 1)


def test_teachers_see_the_observation_and_the_environment_of_their_episode() -> None:
    task = _corridors(length=3)
    state = task.step(task.reset(_draws(2), 2), torch.tensor([[1, 0], [0, 1]]))
    reference = task.reference(state)
    assert reference.actions.shape == (2, 2, 0)
    situations = reference.situations
    assert situations is not None
    assert [[situations.observation(run, e).tolist() for e in (0, 1)] for run in (0, 1)] == [[[1], [0]], [[0], [1]]]
    assert situations.of_runs(torch.tensor([1])).observation(0, 1).tolist() == [1]
    env = situations.environment(1, 1)
    assert isinstance(env, Episode)
    assert (env.unwrapped.place, env.steps, env.total) == (1, 1, 0.0)
    assert int(situations.action(2)) == 1
    assert int(situations.action(np.int64(1))) == 0
    with pytest.raises(ApilError, match=r"action 0 is not in the action space Discrete\(2, start=1\)"):
        situations.action(0)
    task.step(state, torch.ones(2, 2).long())
    with pytest.raises(ApilError, match="is gone"):
        situations.observation(0, 0)


def test_environments_in_processes_of_their_own_do_the_same() -> None:
    def walk(vectorise: Any) -> list[Tensor]:
        task = from_gymnasium(lambda: gymnasium.make("CartPole-v1"), distance="steps", horizon=30, vectorise=vectorise)
        state = task.reset(_draws(1), 2)
        seen = []
        for t in range(30):
            seen.append(torch.cat([state.features, state.distance.unsqueeze(-1), state.done.unsqueeze(-1)], -1))
            state = task.step(state, torch.full((1, 2), t % 3 == 0).long())
        if vectorise == "async":
            with pytest.raises(ApilError, match="lives in another process"):
                state.situations.environment(0, 0)
        assert state.situations.observation(0, 1).shape == (4,)
        task.close()
        return seen

    assert torch.equal(torch.stack(walk("sync")), torch.stack(walk("async")))


def test_discrete_actions_reach_the_environment_as_its_space_has_them() -> None:
    space = spaces.Discrete(3, start=-1)
    made: list[Shows] = []

    def make() -> Shows:
        made.append(Shows(spaces.Discrete(2), action_space=space))
        return made[-1]

    task = from_gymnasium(make, distance=lambda env: 1.0, horizon=3)
    task.step(task.reset(_draws(2), 2), torch.tensor([[0, 1], [2, 0]]))
    taken = [env.taken[0] for env in made[1:]]
    assert taken == [-1, 0, 1, -1]
    assert {type(action) for action in taken} == {type(space.sample())}


def test_valid_actions_seen_while_acting_can_be_learned_from() -> None:
    task = _corridors()
    with torch.inference_mode():
        task.reset(_draws(1), 2)
    weights = torch.zeros(1, 2, 2, requires_grad=True)
    (slopes,) = torch.autograd.grad(task.observe(task.reset(_draws(1), 2)).valid.mul(weights).sum(), weights)
    assert slopes.tolist() == [[[1, 1], [1, 1]]]


def test_box_actions_reach_the_environment_in_their_shape_and_inside_their_bounds() -> None:
    space = spaces.Box(np.array([[-1.0, 0.0]]), np.array([[1.0, 0.1]]), dtype=np.float64)
    made: list[Shows] = []

    def make() -> Shows:
        made.append(Shows(spaces.Discrete(2), action_space=space))
        return made[-1]

    task = from_gymnasium(make, distance=lambda env: 1.0, horizon=3)
    assert task.box is not None
    assert task.actions == 2
    state = task.reset(_draws(1), 1)
    task.step(state, torch.tensor([[[0.5, 0.1]]]))
    assert space.contains(made[1].taken[0])  # 0.1 as float32 is larger than 0.1
    np.testing.assert_allclose(made[1].taken[0], [[0.5, 0.1]])
    action = state.situations.action(np.array([[0.5, 0.1]]))
    assert action.shape == (2,)
    assert bool(task.box.contains(action))
    with pytest.raises(ApilError, match=r"is not in the action space Box"):
        state.situations.action([[0.5, 0.2]])


def test_spaces_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ApilError, match="observation space Text"):
        from_gymnasium(lambda: Shows(spaces.Text(5)), distance="success", horizon=2)
    endless = spaces.Box(-np.inf, np.inf, (1,))
    with pytest.raises(ApilError, match="no finite range"):
        from_gymnasium(lambda: Shows(spaces.Discrete(2), action_space=endless), distance="success", horizon=2)
    with pytest.raises(ApilError, match="has no time limit: give horizon"):
        from_gymnasium(Corridor, distance="success")
    assert from_gymnasium(lambda: gymnasium.make("CartPole-v1"), distance="steps").horizon == 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distance": None}, "distance is None: give a function .* 'success' .* 'steps' .* 'return'"),
        ({"distance": 3}, "distance is 3: give a function of the environment"),
        ({"make_env": 3}, "make_env is 3: give the id of an environment"),
        ({"make_env": "CartPool-v1"}, "Gymnasium has no environment 'CartPool-v1'"),
        ({"make_env": lambda: None}, "make_env returned None: expected a gymnasium.Env"),
        ({"make_env": lambda: gymnasium.make("Nowhere-v0")}, "make_env raised NameNotFound"),
        ({"horizon": -1}, "horizon is -1: give a whole number"),
        ({"batch": 0}, "batch is 0: give a whole number"),
        ({"success_distance": -1.0}, "success_distance is -1.0: give a distance"),
        ({"valid_actions": "all"}, "valid_actions is 'all': give a function"),
    ],
)
def test_arguments_that_cannot_be_meant_are_told(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ApilError, match=message) as caught:
        from_gymnasium(**{"make_env": Corridor, "distance": "success", "horizon": 3, **arguments})
    assert "\n" not in str(caught.value)
    with pytest.raises(ApilError, match="distance is None"):
        from_gymnasium(Corridor, horizon=3)


def test_the_same_seed_and_iteration_begin_the_same_episodes() -> None:
    task = from_gymnasium(lambda: gymnasium.make("Pendulum-v1"), distance=lambda env: 1.0)
    first = task.reset(_draws(2, 3), 2).features
    other = task.reset(_draws(2, 4), 2).features
    assert torch.equal(task.reset(_draws(2, 3), 2).features, first)
    assert not torch.equal(other, first)
    # A run draws the same starts alone as in a stack.
    assert torch.equal(task.reset(_draws(1, 3, seed=1), 2).features[0], first[1])


def test_encoders_by_kind_and_of_your_own() -> None:
    space = spaces.Dict({"image": SPACES["image"], "choice": SPACES["choice"]})
    task = from_gymnasium(lambda: Shows(space), distance="success", horizon=2)
    assert task.encoder is not None
    features = task.reset(_draws(1), 3).features[0]
    assert task.encoder()(features).shape == (3, 128)
    plain = from_gymnasium(lambda: Shows(SPACES["bounded"]), distance="success", horizon=2)
    assert plain.encoder is None

    class Middle(nn.Module):
        def forward(self, observation: dict[str, Tensor]) -> Tensor:
            return observation["image"].mean((2, 3))

    own = from_gymnasium(lambda: Shows(space), distance="success", horizon=2, encoder=Middle())
    assert own.encoder is not None
    expected = features[:, 4:].view(3, 3, 30).mean(-1)
    torch.testing.assert_close(own.encoder()(features), expected)

    class Flat(nn.Module):
        def forward(self, observation: dict[str, Tensor]) -> Tensor:
            return observation["image"].mean()

    wrong = from_gymnasium(lambda: Shows(space), distance="success", horizon=2, encoder=lambda layout: Flat())
    assert wrong.encoder is not None
    with pytest.raises(ApilError, match=r"encoder Flat returned \[\] for 3 observations: expected a tensor \[n, S\]"):
        wrong.encoder()(features)


def test_a_state_is_drawn_by_its_environment_or_described() -> None:
    class Drawing(Shows):
        render_mode = "rgb_array"

    task = from_gymnasium(lambda: Drawing(SPACES["bounded"]), distance=lambda env: 2.0, horizon=2)
    state = task.step(task.reset(_draws(1), 1), torch.zeros(1, 1).long())
    pixels = task.picture(state, 0, 0).pixels
    assert pixels is not None
    assert pixels.shape == (4, 5, 3)
    assert int(pixels.max()) == 1
    hall = _corridors()
    shown = hall.picture(hall.reset(_draws(1), 1), 0, 0)
    assert shown.pixels is None
    assert "distance 3" in shown.text
