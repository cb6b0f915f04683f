"""Factors of LongRoPE found by a search on the weights of a model, beside YaRN tuned as long.

    settings    how long the search is, and what it minimizes
    texts       the texts whose loss is minimized: plain text, or needles in it
    spaces      what is varied: a factor for each pair, or the options of YaRN
    critical    a critical pair and the factors from there on, as in LongRoPE2
    evolution   the search itself: mutation and crossover of the best so far
    factors     ``search_factors``, which puts these together
    words       whether the found factors are better on held-out text

Ding et al. 2024, LongRoPE, section 3.2, https://arxiv.org/abs/2402.13753, and Shang et al. 2025,
LongRoPE2, https://arxiv.org/abs/2502.20082. An evaluation of one candidate reads all windows of the
search text, so this is for small models; the time is estimated first.
"""

from .evolution import SearchOutcome, SearchProgress
from .factors import FactorSearchResult, plan_outcomes, search_factors, split_text
from .settings import FactorSearch
from .words import write_search_verdict

__all__ = [
    "FactorSearch",
    "FactorSearchResult",
    "SearchOutcome",
    "SearchProgress",
    "plan_outcomes",
    "search_factors",
    "split_text",
    "write_search_verdict",
]
