"""Tests of whorl inside models of transformers, which needs version 5."""

from tests.peers import require_transformers

require_transformers(5)
