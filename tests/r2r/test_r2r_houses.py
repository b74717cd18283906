"""Generated houses: sound floor plans and graphs, captions and instructions that are true of them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apil.errors import ApilError
from apil.r2r import houses_folder
from apil.r2r.houses import House, build_house, raw_files
from apil.r2r.houses_dice import Dice
from apil.r2r.houses_folder import default_houses, write_houses
from apil.r2r.houses_language import PLAIN, instruct
from apil.r2r.houses_paths import describe_path, draw_paths
from apil.r2r.houses_plan import ROOM_NAMES, Room
from apil.r2r.world import World

HOUSES, SEED = 6, 3
Annotation = dict[str, Any]
_SYNONYMS = {
    "couch": "sofa",
    "tv": "television",
    "refrigerator": "fridge",
    "picture": "painting",
    "bookcase": "bookshelf",
    "stove": "oven",
    "carpet": "rug",
    "tub": "bathtub",
    "cupboard": "cabinet",
    "footstool": "ottoman",
}
_ROOM_SYNONYMS = {"hall": "hallway", "corridor": "hallway", "foyer": "entryway", "study": "office"} | {
    "exercise room": "gym",
    "staircase": "stairs",
}


def _quiet(what: str, done: int, total: int) -> None:
    """Nobody listens."""


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """All raw files of a few houses."""
    return dict(raw_files(HOUSES, SEED, lambda done: None))


@pytest.fixture(scope="module")
def houses() -> dict[str, House]:
    """The same houses as records."""
    built = [build_house(SEED, number) for number in range(HOUSES)]
    return {house.name: house for house in built}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same houses compiled."""
    return write_houses(tmp_path_factory.mktemp("houses") / "new", HOUSES, SEED, _quiet)


def _split(files: dict[str, bytes], split: str) -> list[Annotation]:
    entries: list[Annotation] = json.loads(files[f"annotations/R2R_{split}.json"])
    return entries


def _graph(files: dict[str, bytes], scan: str) -> tuple[dict[str, complex], np.ndarray[Any, Any]]:
    """From the file: places on the map as east + north i, and the open edges."""
    entries = json.loads(files[f"connectivity/{scan}_connectivity.json"])
    places = {entry["image_id"]: complex(entry["pose"][3], entry["pose"][7]) for entry in entries}
    return places, np.array([entry["unobstructed"] for entry in entries])


def _turns(places: dict[str, complex], path: list[str], heading: float) -> list[float]:
    """Degrees clockwise at each step, from the places alone."""
    facing = complex(math.sin(heading), math.cos(heading))
    degrees = []
    for a, b in pairwise(path):
        step = places[b] - places[a]
        degrees.append(-math.degrees(math.atan2((step / facing).imag, (step / facing).real)))
        facing = step
    return degrees


def _word(degrees: float) -> str:
    """What a turn should be called."""
    if abs(degrees) <= 30:
        return "straight"
    if abs(degrees) > 150:
        return "around"
    return "right" if degrees > 0 else "left"


def _turn_words(text: str) -> list[str]:
    """The turns that an instruction tells; a side on which something is passed is none."""
    text = re.sub(r"on your (left|right)", "", text.lower()).replace("u-turn", "around")
    return re.findall(r"\b(left|right|straight|around)\b", text)


def test_houses_and_seed_decide_every_byte(tmp_path: Path, compiled: Path, files: dict[str, bytes]) -> None:
    again = write_houses(tmp_path / "again", HOUSES, SEED, _quiet)
    assert again.read_bytes() == compiled.read_bytes()
    for name, data in files.items():
        assert (again.parent / name).read_bytes() == data


def test_other_seeds_and_numbers_give_other_houses() -> None:
    plans = [build_house(seed, number).graph.plan for seed in (0, 1) for number in (0, 1, 2)]
    assert len(set(plans)) == 6
    ids = [set(build_house(seed, number).ids) for seed in (0, 1) for number in (0, 1, 2)]
    assert len(set().union(*ids)) == sum(map(len, ids))


def test_a_house_is_the_same_in_a_larger_set(files: dict[str, bytes]) -> None:
    more = dict(raw_files(HOUSES + 1, SEED, lambda done: None))
    for name in ("connectivity/house0002_connectivity.json", "captions/blip2_24view/house0002.json"):
        assert more[name] == files[name]


def test_graphs_are_symmetric_connected_and_without_loops(files: dict[str, bytes]) -> None:
    degrees: Counter[int] = Counter()
    for number in range(HOUSES):
        places, edges = _graph(files, f"house{number:04}")
        assert (edges == edges.T).all()
        assert not edges.diagonal().any()
        reached = np.linalg.matrix_power(np.eye(len(places)) + edges, len(places)) > 0
        assert reached.all()
        assert all(re.fullmatch("[0-9a-f]{32}", name) for name in places)
        degrees.update(edges.sum(1).tolist())
    assert sum(degrees[d] for d in range(2, 7)) >= 0.85 * degrees.total()


def test_edges_go_through_doors_and_never_through_walls(houses: dict[str, House]) -> None:
    crossed = 0
    for house in houses.values():
        plan = house.graph.plan
        for a, b in house.graph.edges:
            p, q = house.graph.points[a], house.graph.points[b]
            if p.z != q.z:
                assert plan.rooms[p.rooms[0]].kind == plan.rooms[q.rooms[0]].kind == "s"
                continue
            floor = plan.rooms[p.rooms[0]].floor
            line = [(p.x + t * (q.x - p.x), p.y + t * (q.y - p.y)) for t in np.linspace(0, 1, 301)]
            within = [{i for i, r in enumerate(plan.rooms) if r.floor == floor and r.holds(x, y)} for x, y in line]
            for (x, y), here, there in zip(line, within, within[1:], strict=False):
                assert here
                if not here & there:
                    openings = [door for door in plan.doors if {*door.rooms} == here | there]
                    assert any(math.dist((x, y), (door.x, door.y)) <= door.width / 2 + 0.05 for door in openings)
                    crossed += 1
    assert crossed > 20


def test_rooms_of_a_floor_do_not_overlap(houses: dict[str, House]) -> None:
    def overlap(a: Room, b: Room) -> float:
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        deep = min(a.y1, b.y1) - max(a.y0, b.y0)
        return max(0.0, wide) * max(0.0, deep)

    for house in houses.values():
        rooms = house.graph.plan.rooms
        for i, room in enumerate(rooms):
            assert all(overlap(room, other) < 1e-6 for other in rooms[i + 1 :] if other.floor == room.floor)
        for floor in {room.floor for room in rooms}:
            assert 8 <= sum(room.floor == floor for room in rooms) <= 18


def test_a_kind_of_thing_stands_in_several_rooms(houses: dict[str, House]) -> None:
    for house in houses.values():
        rooms = Counter(noun for noun, _ in {(thing.noun, thing.room) for thing in house.things})
        assert sum(count >= 2 for count in rooms.values()) >= 0.4 * len(rooms)


def test_the_compiler_takes_the_houses_whole(compiled: Path, files: dict[str, bytes]) -> None:
    world = World.open(compiled)
    assert set(world.features) == {"captions", "objects", "rooms"}
    assert len(world.scans) == HOUSES
    for name, split in world.splits.items():
        assert len(split.names) == 3 * len(_split(files, name))
        edges = (split.path >= 0).sum(1) - 1
        assert edges.min() >= 4
        assert edges.max() <= 6
        # Shortest: the length of the way is the distance of its ends.
        steps = zip(split.path.T[:-1], split.path.T[1:], strict=True)
        length = sum(
            (b >= 0) * (world.position[a.clamp_min(0)] - world.position[b.clamp_min(0)]).norm(dim=-1) for a, b in steps
        )
        assert np.allclose(length, world.distance(split.start, split.goal), atol=1e-3)
    assert int(world.splits["train"].tokens_length.max()) < 80


def test_unseen_houses_are_unseen_and_no_path_is_in_two_splits(files: dict[str, bytes]) -> None:
    scans = {split: {entry["scan"] for entry in _split(files, split)} for split in ("train", "val_seen", "val_unseen")}
    assert not scans["val_unseen"] & scans["train"]
    assert scans["val_seen"] <= scans["train"]
    assert len(set.union(*scans.values())) == HOUSES
    ends = [(e["path"][0], e["path"][-1]) for split in scans for e in _split(files, split)]
    assert len(set(ends)) == len(ends)


def test_goals_are_reached_from_different_starts(files: dict[str, bytes]) -> None:
    goals = Counter(entry["path"][-1] for entry in _split(files, "train"))
    assert sum(goals.values()) / len(goals) > 1.5


def test_plain_instructions_tell_each_turn_of_the_geometry(files: dict[str, bytes], houses: dict[str, House]) -> None:
    dice = Dice(11, "plain")
    told = 0
    for house in houses.values():
        places, _ = _graph(files, house.name)
        for path in draw_paths(dice, house.graph, 60):
            if len({house.graph.points[i].z for i in path}) > 1:
                continue
            heading = dice.uniform(0, 2 * math.pi)
            legs, end = describe_path(house.graph, house.seen, path, heading)
            sentences = instruct(dice, legs, end, PLAIN).removesuffix(".").split(". ")
            expected = _turns(places, [house.ids[i] for i in path], heading)
            assert len(sentences) == len(expected) + 1
            for sentence, degrees in zip(sentences, expected, strict=False):
                # The file has five decimals: an angle right at a bound may round to either side.
                if min(abs(abs(degrees) - bound) for bound in (30, 150)) > 0.01:
                    assert _turn_words(sentence) == [_word(degrees)]
                    told += 1
    assert told > 500


def test_turns_told_are_turns_made_in_their_order(files: dict[str, bytes]) -> None:
    told = 0
    for entry in _split(files, "train"):
        places, _ = _graph(files, entry["scan"])
        for text in entry["instructions"]:
            made = iter(map(_word, _turns(places, entry["path"], entry["heading"])))
            words = _turn_words(text)
            assert all(word in made for word in words), (text, words)
            told += len(words)
    assert told > 3000


def test_the_first_sentence_gives_a_direction(files: dict[str, bytes], houses: dict[str, House]) -> None:
    """It tells the first turn, or names a thing that stands ahead and has no like elsewhere in sight."""
    by_landmark = 0
    for entry in _split(files, "train"):
        house = houses[entry["scan"]]
        first, second = (house.ids.index(name) for name in entry["path"][:2])
        places, _ = _graph(files, entry["scan"])
        turn = _word(_turns(places, entry["path"], entry["heading"])[0])
        for text in entry["instructions"]:
            clause = re.split(r"\. |, | and then ", text.lower())[0]
            if _turn_words(clause):
                assert _turn_words(clause)[0] == turn
                continue
            found = re.match(r"(?:walk towards|head for|go towards|walk up to) the ([a-z ]+?)(?: and |$|\.)", clause)
            assert found, text
            noun = _noun(found[1], house)
            ahead = house.graph.heading(first, second)
            off = [
                abs(math.degrees(math.remainder(s.heading - ahead, 2 * math.pi)))
                for s in house.seen[first]
                if s.thing is not None and s.thing.noun == noun
            ]
            assert off
            assert max(off) <= 25
            by_landmark += 1
    assert by_landmark > 50


def _noun(phrase: str, house: House) -> str:
    """The thing a phrase names, by its noun in the house."""
    nouns = {thing.noun for thing in house.things} | _SYNONYMS.keys()
    noun = max((noun for noun in nouns if re.search(rf"\b{noun}$", phrase)), key=len)
    return _SYNONYMS.get(noun, noun)


def test_rooms_told_are_on_the_path_and_the_stop_is_at_the_goal(
    files: dict[str, bytes], houses: dict[str, House]
) -> None:
    names = "|".join(sorted({*ROOM_NAMES.values(), *_ROOM_SYNONYMS}, key=len, reverse=True))
    rooms_told = stops = 0
    for entry in _split(files, "train"):
        house = houses[entry["scan"]]
        points = [house.graph.points[house.ids.index(name)] for name in entry["path"]]
        on_path = {ROOM_NAMES[house.graph.plan.rooms[room].kind] for point in points for room in point.rooms}
        near = {s.thing.noun for s in house.seen[house.ids.index(entry["path"][-1])] if s.thing and s.distance <= 2}
        for text in map(str.lower, entry["instructions"]):
            for room in re.findall(rf"(?:enter|into|leave|exit|out of|in) the ({names})", text):
                assert _ROOM_SYNONYMS.get(room, room) in on_path, text
                rooms_told += 1
            stop = re.search(
                r"(?:stop|wait) (?:next to|by|near|beside|in front of) the ([a-z ]+?)(?: in the |\.|$)", text
            )
            if stop:
                assert _noun(stop[1], house) in near, text
                stops += 1
    assert rooms_told > 1000
    assert stops > 300


def test_captions_name_what_is_there_with_the_stated_noise(files: dict[str, bytes], houses: dict[str, House]) -> None:
    """A thing is left out of its row with probability 0.12; rows that hold more than four are cut."""
    named, total = 0, 0
    for house in houses.values():
        texts = json.loads(files[f"captions/blip2_24view/{house.name}.json"])
        for name, seen in zip(house.ids, house.seen, strict=True):
            assert len(texts[name]) == 8
            assert all(
                [line.split(":")[0] for line in text.split("\n")] == ["down", "middle", "top"] for text in texts[name]
            )
            nearest: dict[int, str] = {}
            for s in seen:
                if s.thing is not None:
                    nearest.setdefault(round(math.degrees(s.heading) / 45) % 8, s.thing.noun)
            named += sum(noun in texts[name][direction] for direction, noun in nearest.items())
            total += len(nearest)
    # A second thing of the same kind in a direction is rare, and makes the share larger by a hair.
    assert total > 1000
    assert 0.85 < named / total < 0.92


def test_listed_objects_lie_where_the_list_says(files: dict[str, bytes], houses: dict[str, House]) -> None:
    house = houses["house0001"]
    places, _ = _graph(files, house.name)
    listed = json.loads(files[f"objects/navgpt_objects_list/{house.name}.json"])
    count = 0
    for name, directions in listed.items():
        for direction, things in enumerate(directions):
            for noun, at in things.items():
                assert abs(at["heading"] - 45 * direction) <= 30.01
                angle = math.radians(at["heading"])
                spot = places[name] + at["distance"] * complex(math.sin(angle), math.cos(angle))
                assert min(abs(spot - complex(t.x, t.y)) for t in house.things if t.noun == noun) < 0.02
                count += 1
    assert count > 50


def test_new_houses_replace_generated_ones_alone(tmp_path: Path) -> None:
    out = tmp_path / "houses"
    first = write_houses(out, 2, 0, _quiet).read_bytes()
    (out / ".houses-killed").mkdir()
    assert write_houses(out, 2, 1, _quiet).read_bytes() != first
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ApilError, match=r"holds other content \(notes.txt\): give --out a new or empty folder"):
        write_houses(out, 2, 0, _quiet)
    other = tmp_path / "other"
    (other / "connectivity").mkdir(parents=True)
    with pytest.raises(ApilError, match="holds other content"):
        write_houses(other, 2, 0, _quiet)
    assert [path.name for path in other.iterdir()] == ["connectivity"]


def test_too_few_houses_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    for houses in (-1, 0, 1):
        with pytest.raises(ApilError, match=f"houses is {houses}: give at least 2"):
            write_houses(tmp_path / "new", houses, 0, _quiet)
    assert not list(tmp_path.iterdir())


def test_a_failure_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "houses"
    before = write_houses(out, 2, 0, _quiet).read_bytes()

    def stop(what: str, done: int, total: int) -> None:
        if what == "writing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_houses(out, 2, 1, stop)
    assert (out / "r2r.safetensors").read_bytes() == before
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
    with pytest.raises(KeyboardInterrupt):
        write_houses(tmp_path / "new", 2, 1, stop)
    assert not (tmp_path / "new").exists()


def test_default_houses_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(houses_folder, "DEFAULT_HOUSES", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = default_houses()
    assert made.parent == tmp_path / "apil"
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    assert len(World.open(made).scans) == 2
    before = made.stat()
    assert default_houses() == made
    assert made.stat().st_mtime_ns == before.st_mtime_ns
    assert default_houses(tmp_path / "elsewhere").read_bytes() == made.read_bytes()


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ApilError, match="Set XDG_CACHE_HOME"):
        default_houses(tmp_path / "file" / "apil")
