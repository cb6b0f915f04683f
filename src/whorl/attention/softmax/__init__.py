"""Softmax attention in blocks of queries: arguments, who sees whom, and the computation."""
