"""Caches of transformers that hold unrotated keys, for models installed with keys="unrotated".

unrotated   UnrotatedCache: all tokens, rotated by the frequencies of the present length
recompute   generate_recomputed: a text that is run again where frequencies change
sinks       SinkCache: the first tokens and the last ones, for streams without end
splice      splice: fragments of texts, put together to the cache of another text
"""
