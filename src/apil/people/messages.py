"""What is sent to a teacher, and what is taken from one: questions as JSON, answers checked."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from apil.people.storage import PASSES, Refused

NOTE = 2000
"""Characters of a note at most."""
KEY = 100
"""Characters of an idempotency key at most."""
SAID = ("closer", "same", "farther", "done")
"""How near the goal is, compared with the last time, in words."""

_ARROWS = {
    "up": "ArrowUp",
    "right": "ArrowRight",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "forward": "ArrowUp",
    "turn left": "ArrowLeft",
    "turn right": "ArrowRight",
    "stop": "Enter",
    "north": "ArrowUp",
    "east": "ArrowRight",
    "south": "ArrowDown",
    "west": "ArrowLeft",
}
_KEYS = "123456789abghijlmopqrtvwxyz"
"""Keys of the actions in turn; not those of the page itself (c, d, e, f, k, n, s, u)."""


def actions_of(names: list[str], valid: list[int]) -> list[dict[str, Any]]:
    """The actions that can be taken, each with its number, name and keys. A number in a name is its key."""
    numbered = {action: names[action][-1] for action in valid if re.search(r"(^|\D)\d$", names[action])}
    keys = numbered if len(set(numbered.values())) == len(numbered) else {}
    free = iter([key for key in _KEYS if key not in keys.values()])
    found = []
    for action in valid:
        own = keys.get(action) or next(free, None)
        arrow = _ARROWS.get(names[action])
        found.append({"action": action, "name": names[action], "keys": [key for key in (arrow, own) if key]})
    return found


def question_json(row: sqlite3.Row, frames: int, kind: str | None = None) -> dict[str, Any]:
    """A question as its teacher gets it."""
    address = f"/api/questions/{row['id']}/picture"
    return {
        "id": row["id"],
        "kind": kind or row["kind"],
        "asked_at": row["asked_at"],
        "lease_until": row["lease_until"],
        "step": row["step"],
        "picture": f"{address}/{frames - 1}" if frames else None,
        "frames": [f"{address}/{place}" for place in range(frames)],
        **json.loads(row["about"]),
    }


def answer_of(sent: Any, about: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an answer from what was sent, for a question about `about`; refuses what cannot be one."""
    return {
        "question": sent["question"],
        "key": sent["key"],
        "action": json.dumps(_action(sent.get("action"), about)),
        **_distance(sent.get("distance")),
        "note": text_of(sent, "note", NOTE, ""),
    }


def sent_of(body: bytes) -> dict[str, Any]:
    """The object that was sent."""
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise Refused(422, "The body is not a JSON object.")
    return sent


def text_of(sent: Mapping[str, Any], name: str, longest: int, default: str | None = None) -> str:
    """A text of bounded length; refused where it is missing and has no default."""
    value = sent.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or len(value) > longest or (default is None and not value):
        raise Refused(422, f"{name} has to be a text of at most {longest} characters.")
    return value


def why_of(sent: Mapping[str, Any]) -> str:
    """Why a teacher passes."""
    why = sent.get("why", PASSES[0])
    if why not in PASSES:
        raise Refused(422, f"why has to be one of {', '.join(PASSES)}.")
    return str(why)


def _action(value: Any, about: Mapping[str, Any]) -> int | list[float]:
    """An action of the question: its number or name, or numbers within their bounds."""
    if about["continuous"]:
        sides = about["actions"]
        numbers = isinstance(value, list) and len(value) == len(sides) and all(_is_number(own) for own in value)
        if not numbers or not all(s["low"] <= v <= s["high"] for s, v in zip(sides, value, strict=True)):
            bounds = ", ".join(f"{side['low']:g} to {side['high']:g}" for side in sides)
            raise Refused(422, f"action has to be a list of {len(sides)} numbers within {bounds}.")
        return [float(own) for own in value]
    for own in about["actions"]:
        if (type(value) is int and own["action"] == value) or (isinstance(value, str) and own["name"] == value):
            return int(own["action"])
    known = ", ".join(f"{own['action']} ({own['name']})" for own in about["actions"])
    raise Refused(422, f"There is no such action: {known}.")


def _distance(value: Any) -> dict[str, Any]:
    if value is None:
        return {"distance": None, "said": None}
    if isinstance(value, str) and value in SAID:
        return {"distance": None, "said": value}
    if _is_number(value) and 0 <= value < 1e9:
        return {"distance": float(value), "said": None}
    raise Refused(422, f"distance has to be a number from 0 up, or one of {', '.join(SAID)}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
