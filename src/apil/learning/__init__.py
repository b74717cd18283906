"""Alg 1: collect episodes, learn from them, repeat."""
