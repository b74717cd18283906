"""The interface for teachers: what comes out, what is taken, and what counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desks import Place, answer, place

from apil.people.storage import OWNER


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        yield made


def test_a_question_has_what_a_client_needs_and_is_answered_once(desk: Place) -> None:
    ann = desk.client("ann")
    assert ann.get("/api/question").status_code == 204
    own = desk.ask("ann")
    question = ann.get("/api/question").json()
    assert question["id"] == own
    assert question["kind"] == "live"
    assert [action["action"] for action in question["actions"]] == [0, 2]
    assert question["lease_until"] > question["asked_at"]
    picture = ann.get(question["picture"])
    assert picture.status_code == 200
    assert picture.headers["content-type"].startswith("image/svg+xml")
    posted = answer(ann, own, "k1", 2, note="by the window", distance=1.5)
    assert posted.status_code == 201
    assert ann.get("/api/question").status_code == 204
    (kept,) = desk.answers()
    assert (kept["teacher"], kept["action"], kept["distance"], kept["note"]) == ("ann", 2, 1.5, "by the window")
    assert kept["counted"] == 1


def test_the_same_key_again_is_the_same_answer(desk: Place) -> None:
    ann, own = desk.client("ann"), desk.ask("ann")
    ann.get("/api/question")
    first, again = answer(ann, own, "k1"), answer(ann, own, "k1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert len(desk.answers()) == 1


def test_a_second_answer_is_kept_and_does_not_count(desk: Place) -> None:
    ann, own = desk.client("ann"), desk.ask("ann")
    ann.get("/api/question")
    answer(ann, own, "k1", 0)
    assert answer(ann, own, "k2", 2).status_code == 409
    assert [(row["flag"], row["counted"]) for row in desk.answers()] == [("", 1), ("duplicate", 0)]


@pytest.mark.parametrize("action", [1, 7, -1, "up", None, True, 0.0, [0]])
def test_an_action_that_is_not_offered_is_refused(desk: Place, action: object) -> None:
    ann, own = desk.client("ann"), desk.ask("ann")
    ann.get("/api/question")
    assert answer(ann, own, "k1", action).status_code == 422
    assert desk.answers() == []
    assert answer(ann, own, "k1", "right").status_code == 201


def test_numbers_within_their_bounds_are_an_answer_to_a_continuous_question(desk: Place) -> None:
    sides = [{"name": "turn", "low": -1.0, "high": 1.0}, {"name": "gas", "low": 0.0, "high": 1.0}]
    ann, own = desk.client("ann"), desk.ask("ann", about={"continuous": True, "actions": sides})
    ann.get("/api/question")
    for wrong in (0, [0.0], [0.0, 2.0], ["a", 1.0], [True, 0.5]):
        assert answer(ann, own, "k1", wrong).status_code == 422
    assert answer(ann, own, "k1", [-1, 0.25]).status_code == 201
    assert desk.answers()[0]["action"] == [-1.0, 0.25]


def test_a_lease_that_lapses_goes_to_another_and_the_late_answer_is_flagged(desk: Place) -> None:
    ann, bob, own = desk.client("ann"), desk.client("bob"), desk.ask("ann")
    assert ann.get("/api/question").json()["id"] == own
    assert bob.get("/api/question").status_code == 204
    desk.clock.now += 61
    assert bob.get("/api/question").json()["id"] == own
    assert answer(ann, own, "k1").status_code == 409
    assert answer(bob, own, "k2", 2).status_code == 201
    assert answer(ann, own, "k3").status_code == 409
    assert [(row["teacher"], row["flag"], row["counted"]) for row in desk.answers()] == [
        ("ann", "lapsed", 0),
        ("bob", "", 1),
        ("ann", "late", 0),
    ]


def test_a_question_that_nobody_fetches_goes_to_another_after_its_time(desk: Place) -> None:
    bob, own = desk.client("bob"), desk.ask("ann")
    assert bob.get("/api/question").status_code == 204
    desk.clock.now += 61
    assert bob.get("/api/question").json()["id"] == own


def test_the_last_teacher_keeps_a_question_though_the_lease_lapses(tmp_path: Path) -> None:
    with place(tmp_path, "ann") as desk:
        ann, own = desk.client("ann"), desk.ask("ann")
        ann.get("/api/question")
        desk.clock.now += 61
        assert ann.get("/api/question").json()["id"] == own
        assert answer(ann, own, "k1").status_code == 201


def test_skip_passes_to_the_other_and_then_leaves_it_unanswered(desk: Place) -> None:
    ann, bob, own = desk.client("ann"), desk.client("bob"), desk.ask("ann")
    ann.get("/api/question")
    assert ann.post("/api/skip", json={"question": own}).status_code == 200
    assert ann.get("/api/question").status_code == 204
    assert bob.get("/api/question").json()["id"] == own
    assert bob.post("/api/skip", json={"question": own, "why": "unknown"}).status_code == 200
    assert bob.get("/api/question").status_code == 204
    (outcome,) = desk.storage.outcomes(0)
    assert (outcome["question"], outcome["teacher"]) == (own, None)
    assert desk.answers() == []


def test_undo_brings_the_question_back_and_the_next_answer_takes_its_place(desk: Place) -> None:
    ann, own = desk.client("ann"), desk.ask("ann")
    assert ann.post("/api/undo", json={}).status_code == 409
    ann.get("/api/question")
    answer(ann, own, "k1", 0)
    desk.ask("ann")
    again = ann.post("/api/undo", json={}).json()
    assert (again["id"], again["kind"]) == (own, "correction")
    assert ann.get("/api/question").json()["id"] == own
    assert answer(ann, own, "k2", 2).status_code == 201
    assert [(row["action"], row["flag"], row["counted"]) for row in desk.answers()] == [
        (0, "", 0),
        (2, "correction", 1),
    ]
    assert [row["action"] for row in desk.storage.counted()] == ["2"]
    assert ann.get("/api/question").json()["id"] == "q2"


def test_live_questions_come_before_reviews(desk: Place) -> None:
    ann = desk.client("ann")
    desk.ask("ann", kind="review")
    live = desk.ask("ann")
    assert ann.get("/api/question").json()["id"] == live


def test_a_copy_for_agreement_goes_to_another_who_is_not_told_of_the_first(desk: Place) -> None:
    ann, bob, own = desk.client("ann"), desk.client("bob"), desk.ask("ann", copies=1)
    ann.get("/api/question")
    answer(ann, own, "k1", 0)
    copy = bob.get("/api/question")
    assert copy.json()["kind"] == "review"
    assert "k1" not in copy.text
    answer(bob, copy.json()["id"], "k1", 2)
    desk.clock.now += 61
    assert ann.get("/api/question").status_code == 204
    status = desk.client(OWNER).get("/api/owner/status").json()
    assert status["agreement"] == [{"teachers": ["ann", "bob"], "alike": 1, "share": 0.0}]


def test_a_new_trainer_withdraws_what_nobody_looks_at_and_keeps_the_rest_as_reviews(desk: Place) -> None:
    ann, bob = desk.client("ann"), desk.client("bob")
    looked_at, left = desk.ask("ann"), desk.ask("bob")
    ann.get("/api/question")
    desk.storage.begin_epoch()
    assert bob.get("/api/question").status_code == 204
    assert answer(bob, left, "k1").status_code == 409
    assert ann.get("/api/question").json()["kind"] == "review"
    assert answer(ann, looked_at, "k2").status_code == 201


def test_a_walk_that_is_walked_again_gets_the_answer_that_is_there(desk: Place) -> None:
    ann = desk.client("ann")
    own = desk.ask("ann", walk=3, step=1, features=b"here")
    ann.get("/api/question")
    answer(ann, own, "k1", 2)
    desk.storage.begin_epoch()
    question = {"id": "new", "kind": "live", "epoch": 2, "walk": 3, "episode": 0, "step": 1, "features": b"here"}
    found = desk.storage.ask(question, [])
    assert found["id"] == own
    assert found["outcome"]["action"] == "2"
    assert ann.get("/api/question").status_code == 204


def test_the_owner_pauses_ends_a_link_and_downloads_all(desk: Place) -> None:
    owner, ann, bob = desk.client(OWNER), desk.client("ann"), desk.client("bob")
    first, second = desk.ask("ann"), desk.ask("bob")
    owner.post("/api/owner/pause", json={"paused": True})
    assert ann.get("/api/question").status_code == 204
    owner.post("/api/owner/pause", json={"paused": False})
    ann.get("/api/question")
    answer(ann, first, "k1", note="=1+1")
    assert owner.post("/api/owner/end", json={"teacher": "bob"}).status_code == 200
    assert bob.get("/api/question").status_code == 403
    assert ann.get("/api/question").json()["id"] == second
    table = owner.get("/api/owner/answers.csv").text
    assert "'=1+1" in table
    assert len(owner.get("/api/owner/answers.json").json()) == 1


def test_what_the_agent_would_do_can_be_hidden(tmp_path: Path) -> None:
    with place(tmp_path, "ann", show_agent=False) as desk:
        desk.ask("ann")
        assert "agent" not in desk.client("ann").get("/api/question").json()
