"""A trained agent: loaded in one line, acts in one. Nothing here imports training code."""
