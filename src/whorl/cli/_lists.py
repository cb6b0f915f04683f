"""Lists as people type them on a command line: a,b,c."""

from whorl._support.words import quote

__all__ = ["parse_thread_counts", "split_words"]


def split_words(text: str | None) -> list[str] | None:
    """The words between commas; None stays None.

    >>> split_words("meta, mlx")
    ['meta', 'mlx']
    """
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def parse_thread_counts(text: str | None) -> list[int] | None:
    """Positive numbers, and "all" for as many threads as torch uses; each once.

    >>> parse_thread_counts("1,4,1")
    [1, 4]
    """
    found = split_words(text)
    if found is None:
        return None
    if not found or not all(w == "all" or (w.isdecimal() and int(w) > 0) for w in found):
        raise ValueError(f"--threads takes counts such as 1,4 or 1,all; got {quote(text)}.")
    import torch

    return list(dict.fromkeys(torch.get_num_threads() if w == "all" else int(w) for w in found))
