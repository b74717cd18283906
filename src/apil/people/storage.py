"""What is kept of people's teaching: links, questions, leases, answers. One SQLite file, one writer.

An answer counts once. Late ones, a second one to the same question, and those for a lease that went to another teacher
are kept with a flag and do not count.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apil.errors import ApilError

NAME = "people.sqlite"
SCHEMA = 1
OWNER = ""
"""Whose name the owner's sessions have; no teacher can have it."""

_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE teachers(
    name TEXT PRIMARY KEY, place INTEGER NOT NULL, link BLOB NOT NULL, ended INTEGER NOT NULL DEFAULT 0);
CREATE TABLE sessions(hash BLOB PRIMARY KEY, who TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE questions(
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, epoch INTEGER NOT NULL,
    walk INTEGER NOT NULL, episode INTEGER NOT NULL, step INTEGER NOT NULL, version INTEGER NOT NULL,
    assigned TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'open', asked_at REAL NOT NULL, closed_at REAL,
    reserved_until REAL NOT NULL, holder TEXT, shown_at REAL, lease_until REAL,
    distance_known REAL, about TEXT NOT NULL, features BLOB, valid BLOB, twin TEXT NOT NULL);
CREATE INDEX open_questions ON questions(state, kind, number) WHERE state = 'open';
CREATE INDEX places ON questions(walk, episode, step);
CREATE INDEX twins ON questions(twin);
CREATE INDEX states ON questions(features);
CREATE TABLE pictures(question TEXT NOT NULL, frame INTEGER NOT NULL, type TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY(question, frame));
CREATE TABLE passed(question TEXT NOT NULL, teacher TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY(question, teacher));
CREATE TABLE answers(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, teacher TEXT NOT NULL, key TEXT NOT NULL,
    action TEXT NOT NULL, distance REAL, said TEXT, note TEXT NOT NULL DEFAULT '', flag TEXT NOT NULL DEFAULT '',
    counted INTEGER NOT NULL, corrects INTEGER, shown_at REAL, answered_at REAL NOT NULL, UNIQUE(teacher, key));
CREATE INDEX of_question ON answers(question, teacher);
CREATE TABLE outcomes(seq INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, answer INTEGER);
"""

_MAY = """
    NOT EXISTS (SELECT 1 FROM passed WHERE question = questions.id AND teacher = :who)
    AND NOT EXISTS (SELECT 1 FROM questions same WHERE same.twin = questions.twin AND (
        (same.holder = :who AND same.id != questions.id)
        OR EXISTS (SELECT 1 FROM answers WHERE question = same.id AND teacher = :who)))
"""
"""A teacher has not passed on a question, nor answered it or looks at it in another copy."""
_OFFERED = f"state = 'open' AND holder IS NULL AND (assigned = :who OR reserved_until <= :now) AND {_MAY}"
_OUTCOMES = """
    SELECT o.seq, o.question, a.teacher, a.action, a.distance, a.said, a.flag, q.kind, q.walk, q.episode, q.step,
    q.version, q.features, q.valid, q.distance_known
    FROM outcomes o JOIN questions q ON q.id = o.question LEFT JOIN answers a ON a.seq = o.answer
"""
PASSES = ("skip", "unknown")
"""Why a teacher passes on a question: not now, or does not know."""


class Refused(Exception):  # noqa: N818
    """A request that cannot be granted: the status of HTTP, and why in one line."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True)
class Posted:
    """What became of an answer: the status of HTTP and what is said of it."""

    status: int
    said: dict[str, Any]


def digest(token: str) -> bytes:
    """How a token is kept."""
    return hashlib.sha256(token.encode()).digest()


class Storage:
    """The one connection that writes. Methods are called from one thread, inside a transaction of the `Writer`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = folder / NAME
        self.clock = clock
        self._meta: dict[str, Any] = {}
        self.db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA journal_mode = WAL")
        # NORMAL would lose acknowledged answers to a power cut.
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA busy_timeout = 10000")
        self._create()

    def _create(self) -> None:
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise ApilError(f"{self.path} was written by a newer apil, schema {version}: use that one.")
        if version == 0:
            self.db.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {SCHEMA};COMMIT;")

    def close(self) -> None:
        self.db.close()

    def _one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self.db.execute(sql, values).fetchone()
        return found

    def _number(self, sql: str, *values: Any) -> int:
        """The one number that a query gives; 0 for NULL."""
        return int(self.db.execute(sql, values).fetchone()[0] or 0)

    def _named(self, sql: str, values: Mapping[str, Any]) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self.db.execute(sql, values).fetchone()
        return found

    def _all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return self.db.execute(sql, values).fetchall()

    # What the run is

    def meta(self, name: str, default: Any = None) -> Any:
        """A value that was set, or the default."""
        if name not in self._meta:
            row = self._one("SELECT value FROM meta WHERE name = ?", name)
            self._meta[name] = None if row is None else json.loads(row[0])
        return default if self._meta[name] is None else self._meta[name]

    def set_meta(self, name: str, value: Any) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))
        self._meta[name] = value

    def forget_cache(self) -> None:
        """After a transaction that was rolled back."""
        self._meta.clear()

    def teachers(self) -> list[str]:
        """The names, in the order of their identities."""
        return [row["name"] for row in self._all("SELECT name FROM teachers ORDER BY place")]

    # Links and sessions

    def new_link(self, who: str) -> str:
        """A new link of a teacher or the owner; the one before no longer works."""
        token = secrets.token_urlsafe(16)
        if who == OWNER:
            self.set_meta("owner", digest(token).hex())
        else:
            row = self._one("SELECT place FROM teachers WHERE name = ?", who)
            place = self._number("SELECT COUNT(*) FROM teachers") if row is None else row["place"]
            self.db.execute("INSERT OR REPLACE INTO teachers VALUES (?, ?, ?, 0)", (who, place, digest(token)))
        self.db.execute("DELETE FROM sessions WHERE who = ?", (who,))
        return token

    def end_link(self, teacher: str) -> None:
        """Ends the link of a teacher and whatever it was exchanged for; questions that wait for them go to others."""
        if self._one("SELECT 1 FROM teachers WHERE name = ?", teacher) is None:
            raise Refused(404, "There is no such teacher.")
        self.db.execute("UPDATE teachers SET ended = 1 WHERE name = ?", (teacher,))
        self.db.execute("DELETE FROM sessions WHERE who = ?", (teacher,))
        self.db.execute(
            "UPDATE questions SET reserved_until = 0, holder = NULL, lease_until = NULL "
            "WHERE state = 'open' AND (holder = ? OR (holder IS NULL AND assigned = ?))",
            (teacher, teacher),
        )
        for row in self._all("SELECT id FROM questions WHERE state = 'open'"):
            self._close_if_nobody_is_left(row["id"])

    def enter(self, token: str) -> tuple[str, str]:
        """Exchanges a link's token for a session: who it is, and the session's token."""
        found, owner = None, self.meta("owner", "")
        mark = digest(token)
        # All are compared, each in constant time.
        if hmac.compare_digest(mark.hex(), owner):
            found = OWNER
        for row in self._all("SELECT name, link, ended FROM teachers"):
            if hmac.compare_digest(mark, row["link"]) and not row["ended"]:
                found = row["name"]
        if found is None:
            raise Refused(403, "This link is not valid, or no longer.")
        session = secrets.token_urlsafe(16)
        self.db.execute("INSERT INTO sessions VALUES (?, ?, ?)", (digest(session), found, self.clock()))
        return found, session

    def who(self, session: bytes) -> str | None:
        """Whose session it is, by the digest of its token; None if nobody's."""
        row = self._one("SELECT who FROM sessions WHERE hash = ?", session)
        return None if row is None else row["who"]

    # Questions

    def begin_epoch(self) -> dict[str, Any]:
        """A trainer has started: questions of the one before are withdrawn, or kept as reviews where somebody looks at
        them. Returns what the trainer has to know."""
        epoch = self.meta("epoch", 0) + 1
        self.set_meta("epoch", epoch)
        now = self.clock()
        self.db.execute(
            "UPDATE questions SET kind = 'review' WHERE state = 'open' AND kind = 'live' AND lease_until > ?", (now,)
        )
        self.db.execute(
            "UPDATE questions SET state = 'withdrawn', closed_at = ? WHERE state = 'open' AND kind = 'live'", (now,)
        )
        return {
            "epoch": epoch,
            "first_walk": self._number("SELECT 1 + MAX(walk) FROM questions"),
            "seq": self._number("SELECT MAX(seq) FROM outcomes"),
            "reviews": self._number("SELECT COUNT(*) FROM questions WHERE state = 'open' AND kind = 'review'"),
        }

    def ask(self, question: Mapping[str, Any], pictures: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
        """Takes a question in; the same id again changes nothing. `pictures` are type and content, the last is of now.

        A walk that is walked again after a stop asks the same again: it gets the answer that is there, or the question
        is opened again. Returns the id of the question and, if it is closed already, its outcome.
        """
        place = tuple(question[name] for name in ("walk", "episode", "step"))
        row = self._one(
            "SELECT * FROM questions WHERE walk = ? AND episode = ? AND step = ? AND features = ? AND id = twin",
            *(*place, question["features"]),
        )
        if row is None:
            self._insert_question(question["id"], question, question["assigned"], pictures)
            for number, other in enumerate(self._others(question)):
                copy = {**question, "kind": "review"}
                self._insert_question(f"{question['id']}-{number + 1}", copy, other, pictures)
            row = self._one("SELECT * FROM questions WHERE id = ?", question["id"])
            assert row is not None
        elif row["state"] in ("open", "withdrawn"):
            self.db.execute(
                "UPDATE questions SET state = 'open', kind = 'live', epoch = ? WHERE id = ?",
                (question["epoch"], row["id"]),
            )
        self._close_if_nobody_is_left(row["id"])
        last = self._all(f"{_OUTCOMES} WHERE o.question = ? ORDER BY o.seq DESC LIMIT 1", row["id"])
        return {"id": row["id"], "outcome": dict(last[0]) if last else None}

    def _others(self, question: Mapping[str, Any]) -> list[str]:
        """Who is asked the same besides: those with the fewest answers first."""
        rows = self._all(
            "SELECT name FROM teachers WHERE NOT ended AND name != ? ORDER BY "
            "(SELECT COUNT(*) FROM answers WHERE teacher = name AND counted), place LIMIT ?",
            *(question["assigned"], question.get("copies", 0)),
        )
        return [row["name"] for row in rows]

    def _insert_question(
        self, own: str, question: Mapping[str, Any], assigned: str, pictures: Sequence[tuple[str, bytes]]
    ) -> None:
        now = self.clock()
        places = [question[name] for name in ("kind", "epoch", "walk", "episode", "step", "version")]
        rest = [json.dumps(question["about"]), *(question[name] for name in ("features", "valid", "id"))]
        self.db.execute(
            "INSERT INTO questions(id, kind, epoch, walk, episode, step, version, assigned, asked_at, reserved_until, "
            "distance_known, about, features, valid, twin) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (own, *places, assigned, now, now + self._lease(), question["distance_known"], *rest),
        )
        rows = [(own, frame, kind, data) for frame, (kind, data) in enumerate(pictures)]
        self.db.executemany("INSERT INTO pictures VALUES (?, ?, ?, ?)", rows)

    def _lease(self) -> float:
        return float(self.meta("settings", {}).get("lease", 60.0))

    def withdraw(self, ids: Iterable[str]) -> list[str]:
        """Closes questions that nobody waits for any more; returns those that were still open."""
        rows = [self._one("SELECT * FROM questions WHERE id = ? AND state = 'open'", own) for own in ids]
        found = [row for row in rows if row is not None]
        for row in found:
            self._close(row, "withdrawn")
        return [row["id"] for row in found]

    def next_question(self, teacher: str) -> sqlite3.Row | None:
        """The question for a teacher, now leased; the same as before while its lease lasts."""
        now = self.clock()
        self._return_lapsed(now)
        held = self._one("SELECT * FROM questions WHERE state = 'open' AND holder = ?", teacher)
        if held is not None:
            return held
        if self.meta("paused", False):
            return None
        row = self._named(
            f"SELECT * FROM questions WHERE {_OFFERED} ORDER BY kind, assigned != :who, number LIMIT 1",
            {"who": teacher, "now": now},
        )
        if row is None:
            return None
        self.db.execute(
            "UPDATE questions SET holder = ?, shown_at = ?, lease_until = ? WHERE id = ?",
            (teacher, now, now + self._lease(), row["id"]),
        )
        return self._one("SELECT * FROM questions WHERE id = ?", row["id"])

    def _return_lapsed(self, now: float) -> None:
        """Leases that have run out: the question is for anybody who has not had it, or for its last holder again."""
        for row in self._all("SELECT id, holder FROM questions WHERE state = 'open' AND lease_until <= ?", now):
            others = self._left(row["id"], row["holder"])
            if others:
                self.db.execute(
                    "INSERT OR IGNORE INTO passed VALUES (?, ?, 'lapsed', ?)", (row["id"], row["holder"], now)
                )
            self.db.execute(
                "UPDATE questions SET holder = NULL, lease_until = NULL, reserved_until = 0 WHERE id = ?", (row["id"],)
            )

    def _left(self, question: str, but: str = OWNER) -> list[str]:
        """Teachers who may still answer a question."""
        names = [row["name"] for row in self._all("SELECT name FROM teachers WHERE NOT ended AND name != ?", but)]
        may = f"SELECT 1 FROM questions WHERE id = :id AND {_MAY}"
        return [name for name in names if self._named(may, {"id": question, "who": name}) is not None]

    def _close_if_nobody_is_left(self, question: str) -> None:
        row = self._one("SELECT * FROM questions WHERE id = ? AND state = 'open'", question)
        if row is None or row["holder"] is not None or self._left(question):
            return
        # Those whose lease has run out may have it again before it stays without an answer.
        lapsed = self.db.execute("DELETE FROM passed WHERE question = ? AND why = 'lapsed'", (question,)).rowcount
        if not (lapsed and self._left(question)):
            self._close(row, "unanswered")
            self.db.execute("INSERT INTO outcomes(question, answer) VALUES (?, NULL)", (question,))

    def _close(self, row: sqlite3.Row, state: str) -> None:
        self.db.execute(
            "UPDATE questions SET state = ?, closed_at = ?, holder = NULL, lease_until = NULL WHERE id = ?",
            (state, self.clock(), row["id"]),
        )
        # The picture of now is enough to look at a question again.
        last = "(SELECT MAX(frame) FROM pictures WHERE question = ?)"
        self.db.execute(f"DELETE FROM pictures WHERE question = ? AND frame < {last}", (row["id"], row["id"]))

    def waiting(self, teacher: str) -> int:
        """Open questions that may come to a teacher, without the one they look at."""
        values = {"who": teacher, "now": self.clock()}
        row = self._named(f"SELECT COUNT(*) FROM questions WHERE {_OFFERED}", values)
        assert row is not None
        return int(row[0])

    def next_change(self) -> float | None:
        """When the next lease or reservation runs out."""
        row = self._one(
            "SELECT MIN(CASE WHEN holder IS NULL THEN reserved_until ELSE lease_until END) FROM questions "
            "WHERE state = 'open' AND (lease_until > ? OR (holder IS NULL AND reserved_until > ?))",
            *(self.clock(), self.clock()),
        )
        return None if row is None else row[0]

    def picture(self, teacher: str, question: str, frame: int) -> tuple[str, bytes]:
        """A picture of a question that a teacher has or had; negative frames count from the last."""
        row = self._one("SELECT * FROM questions WHERE id = ?", question)
        if row is None or not self._had(row, teacher):
            raise Refused(403, "This question is not yours.")
        order = "frame DESC LIMIT 1 OFFSET ?" if frame < 0 else "frame LIMIT 1 OFFSET ?"
        place = -1 - frame if frame < 0 else frame
        found = self._one(f"SELECT type, data FROM pictures WHERE question = ? ORDER BY {order}", question, place)
        if found is None:
            raise Refused(404, "There is no such picture.")
        return found["type"], found["data"]

    def frames(self, question: str) -> int:
        return self._number("SELECT COUNT(*) FROM pictures WHERE question = ?", question)

    def _had(self, row: sqlite3.Row, teacher: str) -> bool:
        """Whether a teacher was ever shown a question."""
        if row["holder"] == teacher:
            return True
        both = "SELECT 1 FROM passed WHERE question = ? AND teacher = ? UNION "
        both += "SELECT 1 FROM answers WHERE question = ? AND teacher = ?"
        return self._one(both, row["id"], teacher, row["id"], teacher) is not None

    # Answers

    def answer(self, teacher: str, sent: Mapping[str, Any]) -> Posted:
        """Keeps an answer: 201 where it counts, 200 for the same key again, 409 where the question is not open.

        `sent` is checked: question, key, action (JSON text), distance, said, note.
        """
        before = self._one("SELECT * FROM answers WHERE teacher = ? AND key = ?", teacher, sent["key"])
        if before is not None:
            return Posted(200, _receipt(before))
        row = self._one("SELECT * FROM questions WHERE id = ?", sent["question"])
        if row is None:
            raise Refused(404, "There is no such question.")
        own = self._one(
            "SELECT * FROM answers WHERE question = ? AND teacher = ? AND counted ORDER BY seq DESC", row["id"], teacher
        )
        if own is not None:
            undone = self.meta(f"undo {teacher}") == row["id"]
            return self._correct(row, teacher, sent, own) if undone else self._keep(row, teacher, sent, "duplicate")
        if row["state"] != "open":
            if not self._had(row, teacher) and row["assigned"] != teacher:
                raise Refused(403, "This question is not yours.")
            return self._keep(row, teacher, sent, "late")
        if row["holder"] != teacher:
            if not self._had(row, teacher):
                raise Refused(403, "This question is not yours.")
            if row["holder"] is not None:
                return self._keep(row, teacher, sent, "lapsed")
        return self._count(row, teacher, sent)

    def _insert(
        self, row: sqlite3.Row, teacher: str, sent: Mapping[str, Any], flag: str, corrects: int | None = None
    ) -> sqlite3.Row:
        counted = flag in ("", "correction")
        shown = row["shown_at"] if row["holder"] == teacher else None
        values = [sent[name] for name in ("question", "key", "action", "distance", "said", "note")]
        seq = self.db.execute(
            "INSERT INTO answers(teacher, question, key, action, distance, said, note, flag, counted, corrects, "
            "shown_at, answered_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (teacher, *values, flag, counted, corrects, shown, self.clock()),
        ).lastrowid
        found = self._one("SELECT * FROM answers WHERE seq = ?", seq)
        assert found is not None
        return found

    def _keep(self, row: sqlite3.Row, teacher: str, sent: Mapping[str, Any], flag: str) -> Posted:
        return Posted(409, _receipt(self._insert(row, teacher, sent, flag)))

    def _count(self, row: sqlite3.Row, teacher: str, sent: Mapping[str, Any]) -> Posted:
        kept = self._insert(row, teacher, sent, "")
        self._close(row, "answered")
        self.db.execute("INSERT INTO outcomes(question, answer) VALUES (?, ?)", (row["id"], kept["seq"]))
        return Posted(201, _receipt(kept))

    def _correct(self, row: sqlite3.Row, teacher: str, sent: Mapping[str, Any], own: sqlite3.Row) -> Posted:
        """An answer in place of an earlier one, after `undo`."""
        self.db.execute("UPDATE answers SET counted = 0 WHERE seq = ?", (own["seq"],))
        kept = self._insert(row, teacher, sent, "correction", own["seq"])
        self.db.execute("INSERT INTO outcomes(question, answer) VALUES (?, ?)", (row["id"], kept["seq"]))
        self.set_meta(f"undo {teacher}", None)
        return Posted(201, _receipt(kept))

    def undo(self, teacher: str) -> sqlite3.Row:
        """The question of a teacher's last answer, to be answered again; the answer stands until then."""
        last = self._one(
            "SELECT question FROM answers WHERE teacher = ? AND counted ORDER BY seq DESC LIMIT 1", teacher
        )
        if last is None:
            raise Refused(409, "There is nothing to undo.")
        self.set_meta(f"undo {teacher}", last["question"])
        row = self._one("SELECT * FROM questions WHERE id = ?", last["question"])
        assert row is not None
        return row

    def undone(self, teacher: str) -> sqlite3.Row | None:
        """The question that a teacher answers again, if there is one."""
        question = self.meta(f"undo {teacher}")
        return None if question is None else self._one("SELECT * FROM questions WHERE id = ?", question)

    def pass_on(self, teacher: str, question: str, why: str, note: str = "") -> None:
        """A teacher passes: it goes to others, and where nobody is left it stays without an answer."""
        row = self._one("SELECT * FROM questions WHERE id = ?", question)
        if row is None:
            raise Refused(404, "There is no such question.")
        if self.meta(f"undo {teacher}") == question:
            self.set_meta(f"undo {teacher}", None)
            return
        if not self._had(row, teacher):
            raise Refused(403, "This question is not yours.")
        if row["holder"] != teacher:  # it has gone to another already, or is closed
            return
        self.db.execute("INSERT OR REPLACE INTO passed VALUES (?, ?, ?, ?)", (question, teacher, why, self.clock()))
        if note:
            self.db.execute(
                "INSERT INTO answers(teacher, question, key, action, note, flag, counted, answered_at) "
                "VALUES (?, ?, ?, 'null', ?, ?, 0, ?)",
                (teacher, question, secrets.token_hex(16), note, why, self.clock()),
            )
        self.db.execute(
            "UPDATE questions SET holder = NULL, lease_until = NULL, reserved_until = 0 WHERE id = ?", (question,)
        )
        self._close_if_nobody_is_left(question)

    # What the trainer hears

    def outcomes(self, after: int) -> list[dict[str, Any]]:
        """What became of questions since the outcome number `after`: an answer, or none."""
        return [dict(row) for row in self._all(f"{_OUTCOMES} WHERE o.seq > ? ORDER BY o.seq", after)]

    def counted(self) -> list[dict[str, Any]]:
        """All answers that count, with what is needed to learn from them."""
        rows = self._all(
            "SELECT q.id AS question, q.walk, q.episode, q.step, q.version, q.kind, q.features, q.valid, "
            "q.distance_known, a.teacher, a.action, a.distance, a.said, a.flag "
            "FROM answers a JOIN questions q ON q.id = a.question WHERE a.counted ORDER BY a.seq"
        )
        return [dict(row) for row in rows]


def _receipt(answer: sqlite3.Row) -> dict[str, Any]:
    """What a teacher is shown of their own answer."""
    return {
        "answer": answer["seq"],
        "question": answer["question"],
        "action": json.loads(answer["action"]),
        "flag": answer["flag"],
        "counted": bool(answer["counted"]),
    }
