"""Requests that must not get through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desks import ADDRESS, Place, answer, place
from starlette.testclient import TestClient

from apil.errors import ApilError
from apil.people.security import BODY, BURST, Buckets
from apil.people.storage import OWNER
from apil.people.teacher import check_names


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        yield made


def test_without_a_cookie_or_with_a_forged_one_nothing_is_given(desk: Place) -> None:
    nobody = desk.client()
    desk.ask("ann")
    for path in ("/api/question", "/api/me", "/api/events", "/api/owner/status", "/api/owner/answers.csv"):
        assert nobody.get(path).status_code == 401
    forged = TestClient(desk.app, base_url=ADDRESS, cookies={"apil_test": "A" * 22, "apil_owner_test": "B" * 22})
    for path in ("/api/question", "/api/me", "/api/owner/status"):
        assert forged.get(path).status_code == 403
    assert answer(forged, "q1", "k").status_code == 403


def test_a_wrong_link_gives_no_cookie_and_cannot_be_tried_for_ever(desk: Place) -> None:
    client = desk.client()
    found = [client.get(f"/t/{number:022d}") for number in range(30)]
    assert {response.status_code for response in found} == {403, 429}
    assert not any("set-cookie" in response.headers for response in found)


def test_the_cookie_is_for_the_server_alone(desk: Place) -> None:
    entered = desk.client().get(f"/t/{desk.tokens['ann']}")
    said = entered.headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=strict" in said
    assert desk.tokens["ann"] not in said


def test_links_and_sessions_are_kept_as_hashes(desk: Place, tmp_path: Path) -> None:
    desk.client("ann")
    content = b"".join(path.read_bytes() for path in tmp_path.glob("people.sqlite*"))
    for token in desk.tokens.values():
        assert token.encode() not in content


def test_a_teacher_is_no_owner_and_an_owner_no_teacher(desk: Place) -> None:
    ann, owner = desk.client("ann"), desk.client(OWNER)
    assert ann.get("/api/owner/status").status_code == 401
    assert ann.post("/api/owner/end", json={"teacher": "bob"}).status_code == 401
    assert owner.get("/api/question").status_code == 401


def test_the_question_of_another_cannot_be_seen_answered_or_skipped(desk: Place) -> None:
    ann, bob, own = desk.client("ann"), desk.client("bob"), desk.ask("ann")
    address = ann.get("/api/question").json()["picture"]
    assert bob.get(address).status_code == 403
    assert answer(bob, own, "k").status_code == 403
    assert bob.post("/api/skip", json={"question": own}).status_code == 403
    assert desk.answers() == []


def test_who_answered_is_set_by_the_server(desk: Place) -> None:
    ann, own = desk.client("ann"), desk.ask("ann")
    ann.get("/api/question")
    assert answer(ann, own, "k", teacher="bob", identity=1).status_code == 201
    assert desk.answers()[0]["teacher"] == "ann"


def test_requests_of_other_sites_are_refused(desk: Place) -> None:
    ann, own = desk.client("ann"), desk.ask("ann")
    ann.get("/api/question")
    sent = {"question": own, "key": "k", "action": 0}
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert ann.post("/api/answers", json=sent, headers=headers).status_code == 403
    plain = {"content-type": "text/plain"}
    assert ann.post("/api/answers", content=b'{"question": "q1"}', headers=plain).status_code == 415
    assert desk.answers() == []
    assert ann.post("/api/answers", json=sent, headers={"origin": ADDRESS}).status_code == 201


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:9999", "127.0.0.1", "", "localhost.evil.example:8000"])
def test_a_foreign_host_header_is_refused(desk: Place, host: str) -> None:
    ann = desk.client("ann")
    for path in ("/", "/teach", "/api/question", f"/t/{desk.tokens['ann']}"):
        assert ann.get(path, headers={"host": host}).status_code == 403


def test_large_bodies_are_refused_whether_they_say_their_length_or_not(desk: Place) -> None:
    ann = desk.client("ann")
    large = ann.post("/api/answers", content=b"x" * (BODY + 1), headers={"content-type": "application/json"})
    assert large.status_code == 413
    said = {"content-type": "application/json", "content-length": str(100 * 2**20)}
    assert ann.post("/api/answers", content=b"x", headers=said).status_code == 413
    chunks = (b"x" * 1024 for _ in range(100))
    assert ann.post("/api/answers", content=chunks, headers={"content-type": "application/json"}).status_code == 413


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"question": 3}', b"[" * 10_000, b"\xff"])
def test_nonsense_is_refused_in_words(desk: Place, body: bytes) -> None:
    ann = desk.client("ann")
    for path in ("/api/answers", "/api/skip"):
        refused = ann.post(path, content=body, headers={"content-type": "application/json"})
        assert refused.status_code == 422
        assert refused.json()["error"]


def test_every_answer_has_a_strict_policy(desk: Place) -> None:
    client = desk.client("ann")
    for path in ("/", "/teach", "/owner", "/api/question", "/api/none", "/static/teach.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_a_client_that_floods_is_slowed_and_others_are_not() -> None:
    now = [0.0]
    buckets = Buckets(1.0, BURST, lambda: now[0])
    taken = [buckets.take("loud") for _ in range(int(BURST) + 5)]
    assert taken.count(True) == int(BURST)
    assert buckets.take("quiet")
    now[0] = 2.0
    assert buckets.take("loud")


def test_names_with_sql_and_script_are_names(tmp_path: Path) -> None:
    evil = "<script>x</script>'; DROP--"
    check_names([evil])
    with place(tmp_path, evil, "bob") as desk:
        client, own = desk.client(evil), desk.ask(evil)
        client.get("/api/question")
        assert answer(client, own, "k'; DROP TABLE answers;--", note="<img src=x onerror=alert(1)>").status_code == 201
        me = client.get("/api/me")
        assert me.json()["name"] == evil
        assert me.headers["content-type"] == "application/json"
        assert desk.answers()[0]["teacher"] == evil


@pytest.mark.parametrize("names", [[], "ann", ["a+b"], [""], ["x" * 41], ["ann", "ann"], ["a\nb"]])
def test_names_that_cannot_be_are_refused(names: list[str]) -> None:
    with pytest.raises(ApilError):
        check_names(names)
