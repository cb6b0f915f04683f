"""DeBERTa: content-to-position and position-to-content scores, from vectors of bucketed distances.

    score_ij = q_i . K_r[d] ("c2p") + k_j . Q_r[e] ("p2c")      d = bucket(i - j); q_i . k_j is not
    K_r = key projection of P, Q_r = query projection of P      in it; P trained, 2 N vectors
    e = bucket(i - j), p2c_index "released", or bucket(j - i), "paper"
    softmax scale 1 / sqrt(D terms), terms = 1 + [c2p] + [p2c]

bucket(x) = clip(x + N, 0, 2 N - 1): "clipped" with N = max_distance (v1), or of a distance that is
exact up to N / 2 and logarithmic from there to ``max_distance``, "log" with N = position_buckets
(v2, v3). He et al. 2020, DeBERTa, https://arxiv.org/abs/2006.03654; He et al. 2021, DeBERTaV3,
https://arxiv.org/abs/2111.09543.

Different from the paper by default: "p2c" reads the same row d as "c2p", as the released code and
so every trained model does; the paper's equation 4 has delta(j, i) there. Logarithms are taken in
float32, as there. Dropout on P is left to the model. Positions come from outside, so queries and
keys may differ in number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl._support.options import PositiveInt, PositiveNumber, PositiveSize
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.kernels.ops import is_plain
from whorl.kernels.tables import choose_table_dtype

from ._content import (
    check_score_inputs,
    check_whole,
    repeat_heads,
    score_by_index,
    widen,
)
from ._projections import ProjectedVectors, ProjectionMemory
from .base import Card, Config, Encoding, Scorer, ScoreVectors, register, take_options

__all__ = ["DeBERTa", "DeBERTaConfig"]

_TERMS = ("c2p", "p2c")


@dataclass(frozen=True)
class DeBERTaConfig(Config):
    """Options of DeBERTa, checked on construction; ``DeBERTa`` says what they mean."""

    num_heads: PositiveInt
    head_dim: PositiveInt
    _: KW_ONLY
    dim: PositiveInt | None = None
    terms: Sequence[str] = _TERMS  # stored as a tuple
    buckets: Literal["clipped", "log"] = "clipped"
    max_distance: PositiveSize = 512
    position_buckets: int | None = None
    projections: Literal["own", "shared"] = "own"
    norm: Literal["none", "layer_norm"] = "none"
    norm_eps: PositiveNumber = 1e-7
    p2c_index: Literal["released", "paper"] = "released"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_terms()
        if self.p2c_index == "paper" and "p2c" not in self.terms:
            raise ValueError(
                "DeBERTa: p2c_index='paper' changes the term 'p2c' only, which must then be among"
                f" terms; got {self.terms!r}. Add 'p2c', or leave p2c_index out."
            )
        self._check_buckets()

    @property
    def width(self) -> int:
        """Channels of the position vectors P."""
        return self.num_heads * self.head_dim if self.dim is None else self.dim

    @property
    def span(self) -> int:
        """N: P has 2 N rows."""
        return self.max_distance if self.position_buckets is None else self.position_buckets

    def _check_terms(self) -> None:
        if isinstance(self.terms, list):  # as JSON has it
            object.__setattr__(self, "terms", tuple(self.terms))
        terms = self.terms
        known = isinstance(terms, tuple) and all(term in _TERMS for term in terms)
        if not known or not terms or len(set(terms)) < len(terms):
            raise ValueError(
                "DeBERTa: terms must be ('c2p', 'p2c') or one of the two in a tuple; got"
                f" {quote(terms)}. Split a 'c2p|p2c' of another config at '|'."
            )

    def _check_buckets(self) -> None:
        if self.buckets == "clipped":
            if self.position_buckets is not None:
                raise ValueError(
                    "DeBERTa: position_buckets goes with buckets='log', because clipped distances"
                    f" have {2 * self.max_distance} rows by max_distance alone; got"
                    f" {self.position_buckets!r}. Leave it out."
                )
            return
        count = self.position_buckets
        if type(count) is not int or count < 4 or count % 2:
            raise ValueError(
                "DeBERTa: position_buckets must be an even int >= 4 with buckets='log', because"
                f" half of them are exact distances; got {quote(count)}. DeBERTa-v3 has 256."
            )
        if self.max_distance < count // 2 + 2:
            raise ValueError(
                "DeBERTa: max_distance must be at least position_buckets / 2 + 2, because distances"
                f" up to {count // 2} are exact and the logarithm spans the rest; got"
                f" {self.max_distance}."
            )


@register("deberta")
class DeBERTa(Encoding):
    """Disentangled attention: relative position vectors as keys and as queries.

    Args:
        num_heads, head_dim: H and D.
        dim: channels of the position vectors, H D by default.
        terms: "c2p" (queries meet positions), "p2c" (keys meet positions), or both.
        buckets: "clipped" (v1) or "log" (v2, v3).
        max_distance: where clipping begins, and where the logarithm ends.
        position_buckets: N for "log"; 256 in the released models.
        projections: "own" projections of the position vectors, or "shared": those of the attention
            layer, to be handed over with ``share``.
        norm: "layer_norm" normalises the position vectors first (v2, v3), with ``norm_eps``.
        p2c_index: which vector a key at j meets for a query at i: that of i - j ("released", as
            all published weights need) or that of j - i ("paper", equation 4).

    Parameters: ``vectors`` [2 N, dim]; ``key`` and ``query``, linear dim -> H D, with projections
    of their own; ``norm``. Matrices start normal with width 0.02, biases at 0.

    From transformers, v1: encoder.rel_embeddings.weight -> vectors, and of attention.self in a
    layer pos_proj -> key (it has no bias: leave ours at 0, softmax never sees it), pos_q_proj ->
    query. v2, v3: pos_key_proj -> key, pos_query_proj -> query, encoder.LayerNorm -> norm; with
    share_att_key instead ``share(query_proj, key_proj)``. All layers of a model share ``vectors``
    and ``norm``: assign those of the first to the others.

    >>> import torch
    >>> from whorl.encodings import DeBERTa
    >>> deberta = DeBERTa(12, 64, buckets="log", position_buckets=256)
    >>> q, k = torch.randn(1, 12, 20, 64), torch.randn(1, 12, 20, 64)  # [B, H, T, D]
    >>> at = torch.arange(20)
    >>> score = q @ k.mT + deberta.content_score(q, k, at, at)
    >>> weights = (score * deberta.softmax_scale(64)).softmax(-1)
    """

    fractional: ClassVar[bool] = False
    card: ClassVar[Card] = Card(
        formula="q_i . K_r[d] + k_j . Q_r[d], d = bucket(i - j)",
        paper="He et al. 2020",
        url="https://arxiv.org/abs/2006.03654",
        relative=True,
        longer="partly",
        linear_attention="no",
        many_axes=False,
        memory="2 N dim + 2 H D dim parameters, B H (T + S) 2 N products",
        compute="2 N H D (2 dim + B (T + S))",
    )

    head_axes: ClassVar[Mapping[str, int]] = {
        "key.weight": 0,
        "key.bias": 0,
        "query.weight": 0,
        "query.bias": 0,
    }
    config: DeBERTaConfig
    _shared: tuple[nn.Module, nn.Module] | None  # query and key projection of the attention layer
    _buckets: Tensor  # of distances 0 .. max_distance
    _memory: ProjectionMemory

    @take_options(DeBERTaConfig)
    def __init__(self) -> None:
        config, width = self.config, self.config.width
        self.vectors = nn.Parameter(torch.empty(2 * config.span, width))
        own = {"c2p": "key", "p2c": "query"} if config.projections == "own" else {}
        for term in config.terms:
            if term in own:
                self.add_module(own[term], nn.Linear(width, config.num_heads * config.head_dim))
        if config.norm == "layer_norm":
            self.norm = nn.LayerNorm(width, eps=config.norm_eps)
        # In a tuple, so that the layer's projections do not become submodules of this one too.
        self._shared = None
        self._derive()
        self.reset_parameters()

    @property
    def exempt(self) -> Mapping[str, str]:  # type: ignore[override]  # depends on the options
        if self.config.projections == "own":
            return {}
        why = "built anew it has no projections until share hands them over"
        return {"constants": why, "head_shards": why}

    def share(self, query_proj: nn.Module, key_proj: nn.Module) -> "DeBERTa":
        """Project position vectors with the attention layer's own modules; returns the encoding.

        They stay the layer's: they are not in this module's state_dict and do not move with it. A
        deep copy or pickle of the whole model keeps the tie, to the copied layer.
        """
        if self.config.projections != "shared":
            raise ValueError(
                "DeBERTa.share: this encoding has projections of its own; build it with"
                " projections='shared'."
            )
        for what, module in (("query_proj", query_proj), ("key_proj", key_proj)):
            if not isinstance(module, nn.Module):
                raise TypeError(
                    f"DeBERTa.share: {what} must be a module such as nn.Linear; got"
                    f" {type(module).__name__}."
                )
            taken = getattr(module, "in_features", self.config.width)
            if taken != self.config.width:
                raise ValueError(
                    f"DeBERTa.share: {what} must take the {self.config.width} channels of the"
                    f" position vectors; got {taken}. Build the encoding with dim={taken}."
                )
        self._shared = (query_proj, key_proj)
        return self

    def derive_shard_options(self, rank: int, world: int) -> dict[str, Any]:
        return {"dim": self.config.width}

    def list_outer_parameters(self) -> list[nn.Parameter]:
        both = zip(("p2c", "c2p"), self._shared or (), strict=False)
        modules = [module for term, module in both if term in self.config.terms]
        return [parameter for module in modules for parameter in module.parameters()]

    def reset_parameters(self) -> None:
        """Start trained parameters afresh, as is needed after ``to_empty``."""
        nn.init.normal_(self.vectors, std=0.02)
        for module in self.children():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()

    def softmax_scale(self, head_dim: int) -> float:
        """1 / sqrt(D terms), where q k^T is a term too."""
        return float((head_dim * (1 + len(self.config.terms))) ** -0.5)

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """q_i . K_r[d] + k_j . Q_r[e], [B, H, T, S]."""
        return self._score(None, q, k, positions, key_positions)

    def scorer(
        self,
        q: Tensor,
        k: Tensor,
        key_positions: Tensor,
        distance_range: tuple[int, int] | None,
        scale: float = 1.0,
    ) -> Scorer:
        """``content_score`` with position vectors projected once."""
        known = None
        if not q.is_meta and not torch.compiler.is_compiling():
            known = self._project_all(choose_table_dtype(q), distance_range)

        def score(q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
            return self._score(known, *widen(q, k), positions, key_positions, scale)

        return score

    def score_vectors(
        self, dtype: torch.dtype, distance_range: tuple[int, int] | None
    ) -> ScoreVectors:
        projected = self._project_all(dtype, distance_range)

        def find_rows(distance: Tensor) -> tuple[Tensor, Tensor]:
            none = distance.new_zeros(1)
            rows = key_rows = projected.find_rows(self._find_buckets(distance, none)[:, 0]).int()
            if self.config.p2c_index == "paper":
                key_rows = projected.find_rows(self._find_buckets(-distance, none)[:, 0]).int()
            return rows, key_rows

        return ScoreVectors(projected.keys, projected.queries, find_rows)

    def _score(
        self,
        projected: ProjectedVectors | None,
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        key_positions: Tensor,
        scale: float = 1.0,
    ) -> Tensor:
        where, heads = "DeBERTa.content_score", self.config.num_heads
        query_positions, key_positions = check_score_inputs(
            q, k, positions, key_positions, heads, self.config.head_dim, where
        )
        check_whole(query_positions, where)
        check_whole(key_positions, where)
        wide = choose_table_dtype(q)
        index = self._find_buckets(query_positions, key_positions)
        if projected is None:
            projected = self._project_rows(*self._find_used_rows(index), wide)
        scores = []
        if projected.keys is not None:
            scores.append(
                score_by_index(q.to(wide) * scale, projected.keys, projected.find_rows(index))
            )
        if projected.queries is not None:
            if self.config.p2c_index == "paper":
                index = self._find_buckets(key_positions, query_positions)
            else:
                index = index.mT
            wide_k = repeat_heads(k.to(wide) * scale, heads)
            rows = projected.find_rows(index)
            scores.append(score_by_index(wide_k, projected.queries, rows).mT)
        return (scores[0] if len(scores) == 1 else scores[0] + scores[1]).to(q.dtype)

    def _project_all(
        self, dtype: torch.dtype, distance_range: tuple[int, int] | None
    ) -> ProjectedVectors:
        """K_r and Q_r for a call.

        Without gradients those of all buckets, which are used again as long as what they were made
        from has not changed; else those that the distances need.
        """
        first, end = 0, 2 * self.config.span
        if distance_range is not None:
            far = max(map(abs, distance_range))
            ends = torch.tensor([-far, far], device=self.vectors.device)
            buckets = self._find_buckets(ends, ends.new_zeros(1))
            if has_values(buckets):
                first, end = int(buckets[0]), int(buckets[1]) + 1
        sources = self._list_sources()
        if sources is None:
            return self._project_rows(first, end, dtype)
        found = self._memory.get(sources, dtype)
        if found is None:
            with (  # for calls of any kind later
                torch.inference_mode(False),
                torch.no_grad(),
                torch.autocast("cpu", enabled=False),
            ):
                found = self._project_rows(0, 2 * self.config.span, dtype)
            self._memory.put(sources, dtype, found)
        return found.take_rows(first, end)

    def _list_sources(self) -> list[Tensor] | None:
        """All tensors that K_r and Q_r are made from; None if they are not ordinary, or trained."""
        modules = list(self.children())
        if self._shared is not None:
            both = zip(("p2c", "c2p"), self._shared, strict=True)
            modules += [module for term, module in both if term in self.config.terms]
        if not all(type(module) in (nn.Linear, nn.LayerNorm) for module in modules):
            return None
        parameters = (p for module in modules for p in module.parameters())
        tensors: list[Tensor] = [self.vectors, *parameters]
        return tensors if is_plain(tensors, gradless=True) else None

    def _project_rows(self, first: int, end: int, dtype: torch.dtype) -> ProjectedVectors:
        """K_r and Q_r of buckets first .. end - 1."""
        vectors = self.vectors[first:end].to(dtype)
        if self.config.norm == "layer_norm":
            weight, bias = self.norm.weight.to(dtype), self.norm.bias.to(dtype)
            eps = self.config.norm_eps
            vectors = F.layer_norm(vectors, (self.config.width,), weight, bias, eps)
        terms = self.config.terms
        return ProjectedVectors(
            first,
            end,
            self._project("key", vectors) if "c2p" in terms else None,
            self._project("query", vectors) if "p2c" in terms else None,
        )

    def _find_buckets(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """The row of P for each query's distance to each key, [(B,) T, S]."""
        distance, span = (
            query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2),
            self.config.span,
        )
        if self.config.buckets == "log":
            steps = self._buckets.to(distance.device)
            far = steps[distance.abs().clamp(max=self.config.max_distance)]
            distance = distance.sign() * far
        return (distance + span).clamp(0, 2 * span - 1)

    def _find_used_rows(self, buckets: Tensor) -> tuple[int, int]:
        """The first bucket and the one after the last; short texts use few of the 2 N."""
        most = 2 * self.config.span
        if not buckets.numel() or not has_values(buckets):
            return 0, most
        first, last = (int(v) for v in buckets.aminmax())
        if self.config.p2c_index == "paper":  # and those of the distances j - i
            first, last = min(first, most - 1 - last), min(max(last, most - first), most - 1)
        return first, last + 1

    def _project(self, which: Literal["key", "query"], vectors: Tensor) -> Tensor:
        """Position vectors [N, dim] as keys or queries of every head, [H, N, D]."""
        if self.config.projections == "own":
            module = self.get_submodule(which)
        elif self._shared is None:
            raise RuntimeError(
                "DeBERTa: projections='shared' uses those of the attention layer, but none came;"
                " call encoding.share(layer.query_proj, layer.key_proj) first."
            )
        else:
            module = self._shared[which == "key"]
        dtype, head_dim = vectors.dtype, self.config.head_dim
        if type(module) is nn.Linear:  # in the precision of the scores, whatever the model's
            bias = None if module.bias is None else module.bias.to(dtype)
            projected = F.linear(vectors, module.weight.to(dtype), bias)
        else:
            projected = module(vectors.to(self.vectors.dtype)).to(dtype)
        heads, rest = divmod(projected.shape[-1], head_dim)
        if rest or not heads or self.config.num_heads % heads:
            raise ValueError(
                f"DeBERTa: the shared {which} projection must give head_dim = {head_dim} channels"
                f" for each of {self.config.num_heads} heads, or of fewer that divide them; got"
                f" {projected.shape[-1]}."
            )
        projected = projected.reshape(-1, heads, head_dim).transpose(0, 1)
        return repeat_heads(projected, self.config.num_heads)

    def _derive(self) -> None:
        with torch.inference_mode(False):  # constants must serve training later
            self._buckets = _log_buckets(self.config.span, self.config.max_distance)
        self._memory = ProjectionMemory()

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_buckets", "_memory")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._derive()


def _log_buckets(count: int, max_distance: int) -> Tensor:
    """Buckets of distances 0 .. max_distance: exact up to count / 2, then logarithmic; int64."""
    distance = torch.arange(max_distance + 1, device="cpu")
    half = count // 2
    if max_distance < half + 2:  # clipped distances need none
        return distance
    ratio = (distance.clamp(min=half).float() / half).log()
    whole = torch.full((), (max_distance - 1) / half, dtype=torch.float32, device="cpu").log()
    steps = (ratio / whole * (half - 1)).ceil().long() + half
    return torch.where(distance <= half, distance, steps)
