"""Softmax attention in blocks of queries: arguments, visibility of keys, rotation, computation."""
