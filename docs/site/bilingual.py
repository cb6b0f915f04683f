"""Pages in Chinese: their language in the HTML, and a search that finds Chinese words.

Chinese has no spaces, so its text is indexed by pairs of neighbouring characters; what is typed
into the search box is cut in the same way.
"""

import re
from typing import Any

from sphinx.search import languages
from sphinx.search.en import SearchEnglish

CHINESE = "\u4e00-\u9fff"
#: A run of Chinese characters, or a word of any other letters and digits.
WORDS = re.compile(rf"[{CHINESE}]+|[^\W{CHINESE}]+")


class SearchBoth(SearchEnglish):  # type: ignore[misc]
    """English words, and pairs of Chinese characters."""

    js_splitter_code = """
function splitQuery(query) {
  const found = [];
  for (const word of query.match(/[\\u4e00-\\u9fff]+|[\\p{L}\\p{N}_]+/gu) || []) {
    const parts = word.match(/[\\u4e00-\\u9fff]+|[^\\u4e00-\\u9fff]+/gu);
    for (const part of parts)
      if (!/[\\u4e00-\\u9fff]/.test(part) || part.length < 3) found.push(part);
      else for (let n = 0; n + 1 < part.length; n++) found.push(part.slice(n, n + 2));
  }
  return found;
}
"""

    def split(self, input: str) -> list[str]:
        """Words of a text: English ones whole, Chinese runs in overlapping pairs."""
        found: list[str] = []
        for word in WORDS.findall(input):
            found += cut_pairs(word) if is_chinese(word) else [word]
        return found

    def word_filter(self, word: str) -> bool:
        """Whether a word is worth an entry of the index."""
        return is_chinese(word) or bool(super().word_filter(word))


def is_chinese(word: str) -> bool:
    """Whether a word that `WORDS` found is a run of Chinese characters."""
    return bool(re.match(f"[{CHINESE}]", word))


def cut_pairs(word: str) -> list[str]:
    """Pairs of neighbouring characters; a word of one or two stays whole."""
    return [word] if len(word) < 3 else [word[n : n + 2] for n in range(len(word) - 1)]


def set_language(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Say in the HTML that a page is in Chinese."""
    if name.startswith("docs/zh/") or name == "README.zh":
        context["language"] = "zh"


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    languages["en"] = SearchBoth
    app.connect("html-page-context", set_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
