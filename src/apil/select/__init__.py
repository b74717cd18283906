"""Whom to ask: selectors by name. A query policy decides whether to ask, a selector which teacher.

Examples:
    >>> "learned" in apil.select.SELECTORS.names()
    True
"""

from __future__ import annotations

from apil.registry import Registry

SELECTORS = Registry("selector", "apil.selectors")
ENVIRONMENT = "environment"
"""The teachers choose by themselves, as in the paper."""
for _name, _target, _summary in (
    (ENVIRONMENT, "rules:environment", "whoever the teachers send, as in the paper (no selector)"),
    ("cheapest", "rules:cheapest", "whose answer costs least; in turn where several cost the same"),
    ("round-robin", "rules:round_robin", "one after the other"),
    ("best", "learned:best", "the highest estimated skill for its cost"),
    ("learned", "learned:learned", "skill estimated state by state, explored, and weighed against the cost"),
):
    SELECTORS.register(_name, f"apil.select.{_target}", _summary)
