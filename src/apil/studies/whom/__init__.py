"""Whom to ask: selectors compared by what their answers cost, over tasks whose teachers are not equally good."""
