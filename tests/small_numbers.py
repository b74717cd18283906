"""What is made small in the code of the documentation before it is run, as patterns and what takes their place."""

from __future__ import annotations

SMALL = {
    r"iterations=\d+": "iterations=2",
    r"answer_budget=\d+": "answer_budget=20, iterations=5",  # it would learn on until that brings nothing
    r"seeds=\d+": "seeds=1",
    r"(episodes=|evaluate\()\d+": r"\g<1>4",
}
