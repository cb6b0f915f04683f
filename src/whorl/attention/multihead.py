"""Multi-head attention as a module: projections around ``attention``, any encoding inside."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from whorl._support.storage import check_storage
from whorl._support.tracing import is_exporting
from whorl._support.words import quote
from whorl.encodings import Encoding
from whorl.types import QueryKeyNorm

from ._checks import check_dropout, check_encoding, check_positive
from .qk_norm import HeadNorm, check_qk_norm, normalize_heads
from .softmax.attention import BLOCK, attention

if TYPE_CHECKING:
    from .cache.kv_cache import KVCache

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.Module):
    """Attention over [B, T, d_model] with grouped keys and an encoding of your choice.

    Args:
        d_model: width of the model.
        num_heads: heads of the queries; d_model / num_heads channels each unless ``head_dim``.
        num_kv_heads: heads of keys and values, as many as ``num_heads`` by default.
        encoding: any encoding or composition that acts in attention; layers may share it. One that
            acts on embeddings is called there, once: ``encoding.embed(x)``.
        bias: whether the projections have a bias.
        dropout: probability that an attention weight is dropped, in training.
        causal: the default of ``causal`` in each call.
        qk_norm: "before" divides queries and keys of each head by their root mean square and
            multiplies them by trained weights [head_dim], before they are rotated (Qwen3); "after"
            has the weights after the rotation, whose ``attention_scale`` then still counts. A cache
            holds normalized keys, with their weight if it comes before the rotation; if it comes
            after, the queries are multiplied by both weights instead (``qk_norm.py``).

    Weights are initialized as those of ``nn.MultiheadAttention``: Glorot-uniform over the
    projections of queries, keys and values together. Inputs have the shape of ``batch_first=True``;
    ``from_torch`` copies trained weights.

    >>> import torch, whorl
    >>> layer = whorl.MultiheadAttention(256, 8, num_kv_heads=2, encoding=whorl.RoPE(32))
    >>> layer(torch.randn(4, 100, 256), causal=True).shape
    torch.Size([4, 100, 256])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encoding: Encoding | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        causal: bool = False,
        qk_norm: QueryKeyNorm = "none",
    ) -> None:
        super().__init__()
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = _get_head_dim(d_model, num_heads, kv_heads, head_dim)
        check_encoding(encoding, "MultiheadAttention")
        _check_fits(encoding, num_heads, kv_heads, self.head_dim)
        check_dropout(dropout, "MultiheadAttention")
        check_qk_norm(qk_norm, encoding, "MultiheadAttention")
        self.d_model, self.num_heads, self.num_kv_heads = d_model, num_heads, kv_heads
        self.dropout, self.causal, self.qk_norm = dropout, causal, qk_norm
        self.encoding = encoding
        self.q_proj = nn.Linear(d_model, num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(d_model, kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(d_model, kv_heads * self.head_dim, bias=bias)
        self.out_proj = nn.Linear(num_heads * self.head_dim, d_model, bias=bias)
        if qk_norm != "none":
            self.q_norm, self.k_norm = HeadNorm(self.head_dim), HeadNorm(self.head_dim)
        self.reset_parameters()

    @classmethod
    def from_torch(
        cls, module: nn.MultiheadAttention, encoding: Encoding | None = None
    ) -> "MultiheadAttention":
        """A layer with the weights of an ``nn.MultiheadAttention``, and an encoding.

        Device, dtype and training mode are those of the module.
        """
        _check_module(module)
        layer = cls(
            module.embed_dim,
            module.num_heads,
            encoding=encoding,
            bias=module.in_proj_bias is not None,
            dropout=module.dropout,
        )
        layer = layer.to(module.in_proj_weight.device, module.in_proj_weight.dtype)
        projections = (layer.q_proj, layer.k_proj, layer.v_proj)
        with torch.no_grad():
            for proj, weight in zip(projections, module.in_proj_weight.chunk(3), strict=True):
                proj.weight.copy_(weight)
            layer.out_proj.weight.copy_(module.out_proj.weight)
            if module.in_proj_bias is not None:
                for proj, bias in zip(projections, module.in_proj_bias.chunk(3), strict=True):
                    proj.bias.copy_(bias)
                layer.out_proj.bias.copy_(module.out_proj.bias)
        return layer.train(module.training)

    def reset_parameters(self) -> None:
        """Initialize projections as torch does, biases with 0, norms with 1; not the encoding."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        rows = sum(proj.out_features for proj in projections)  # of torch's one stacked matrix
        bound = (6 / (self.d_model + rows)) ** 0.5
        for proj in projections:
            nn.init.uniform_(proj.weight, -bound, bound)
        self.out_proj.reset_parameters()
        for proj in (*projections, self.out_proj):
            if proj.bias is not None:
                nn.init.zeros_(proj.bias)
        if self.qk_norm != "none":
            self.q_norm.reset_parameters()
            self.k_norm.reset_parameters()

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        causal: bool | None = None,
        window: int | None = None,
        sinks: int = 0,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        mask: Tensor | None = None,
        documents: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        cache: "KVCache | None" = None,
        scale: float | None = None,
        context_length: int | Tensor | None = None,
        segments: Tensor | None = None,
        sink_logits: Tensor | None = None,
        softcap: float | None = None,
        block: int = BLOCK,
    ) -> Tensor:
        """Queries [B, T, d_model] over keys [B, S, d_model], the same by default: [B, T, d_model].

        The options are those of ``whorl.attention``; dropout is that of the layer. Keys are visible
        where ``mask`` is 1, so pass ``~key_padding_mask`` or ``~attn_mask`` of torch: besides
        [B, S] and [B, H, T, S] it may be [T, S] here, one for all rows. If B = T, the shape does
        not tell [B, S] from [T, S], so pass four axes: ``padding[:, None, None]`` or
        ``mask[None, None]``. While torch.export traces, a mask of two axes is always padding.
        """
        key = query if key is None else key
        value = key if value is None else value
        for name, x in (("query", query), ("key", key), ("value", value)):
            _check_input(x, name, self.d_model)
        q, k, v = (
            proj(x).unflatten(-1, (heads, self.head_dim)).transpose(1, 2)
            for proj, x, heads in (
                (self.q_proj, query, self.num_heads),
                (self.k_proj, key, self.num_kv_heads),
                (self.v_proj, value, self.num_kv_heads),
            )
        )
        weight = None
        if self.qk_norm != "none":
            q, k, weight = normalize_heads(q, k, self.q_norm, self.k_norm, self.qk_norm)
        out = attention(
            q,
            k,
            v,
            self.encoding,
            causal=self.causal if causal is None else causal,
            window=window,
            sinks=sinks,
            positions=positions,
            key_positions=key_positions,
            mask=mask if cache is not None else _add_mask_axes(mask, query, key),
            documents=documents,
            cu_seqlens=cu_seqlens,
            cache=cache,
            dropout=self.dropout if self.training else 0.0,
            scale=scale,
            context_length=context_length,
            segments=segments,
            sink_logits=sink_logits,
            softcap=softcap,
            query_weight=weight,
            block=block,
        )
        result: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return result

    def extra_repr(self) -> str:
        grouped = "" if self.num_kv_heads == self.num_heads else f", kv {self.num_kv_heads}"
        norm = "" if self.qk_norm == "none" else f", qk_norm {quote(self.qk_norm)}"
        return f"{self.d_model}, heads {self.num_heads}{grouped}{norm}"


def _check_module(module: nn.MultiheadAttention) -> None:
    where = "MultiheadAttention.from_torch"
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(
            f"{where}: module must be an nn.MultiheadAttention; got {type(module).__name__}."
        )
    if module.bias_k is not None or module.add_zero_attn or module.in_proj_weight is None:
        raise ValueError(
            f"{where}: module must be built without kdim, vdim, add_bias_kv and add_zero_attn,"
            " which have no counterpart here."
        )
    if not module.batch_first:
        raise ValueError(
            f"{where}: module must have batch_first=True, because inputs [T, B, d_model] would be"
            " taken for [B, T, d_model] here; got batch_first=False. Transpose the inputs where the"
            " layer is called, and set module.batch_first = True."
        )


def _check_input(x: Tensor, name: str, d_model: int) -> None:
    wanted = f"MultiheadAttention: {name} must be [B, T, d_model] with d_model = {d_model}; got"
    if not isinstance(x, Tensor):
        raise TypeError(f"{wanted} {type(x).__name__}.")
    check_storage(x, "MultiheadAttention", name)
    if x.dim() == 2:
        raise ValueError(
            f"{wanted} {list(x.shape)}. For one sequence without a batch pass {name}.unsqueeze(0)."
        )
    if x.dim() != 3 or x.shape[2] != d_model:
        raise ValueError(f"{wanted} {list(x.shape)}.")


def _add_mask_axes(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A mask [T, S] as [1, 1, T, S]; refuse one that may also be padding, [B, S]."""
    if is_exporting():  # a comparison of B and T would tie the program to B != T
        return mask
    (B, T, _), S = query.shape, key.shape[1]
    if not isinstance(mask, Tensor) or mask.shape != (T, S):
        return mask
    if T == B and T > 1:
        raise ValueError(
            f"MultiheadAttention: mask must have four axes if B = T = {T}, because {[T, S]} may be"
            " [B, S], padding, or [T, S], one mask for all rows; got two axes. Pass"
            " mask[:, None, None] for padding, mask[None, None] for all rows."
        )
    return mask[None, None]


def _check_fits(encoding: Encoding | None, heads: int, kv_heads: int, head_dim: int) -> None:
    """Refuse an encoding for other sizes, or one that acts on embeddings only."""
    if encoding is None:
        return
    if encoding.hooks == {"input"}:
        raise ValueError(
            "MultiheadAttention: encoding must act in attention, because one for embeddings would"
            f" do nothing here; got {quote(encoding)}. Call encoding.embed(x) before the first"
            " layer, and leave encoding= out."
        )
    sizes = (("num_heads", heads), ("num_kv_heads", kv_heads), ("head_dim", head_dim))
    for part in encoding.parts:
        for option, wanted in sizes:
            size = getattr(getattr(part, "config", None), option, None)
            if size is not None and size != wanted:
                raise ValueError(
                    f"MultiheadAttention: encoding must have {option}={wanted} as the layer; got"
                    f" {size} in {quote(part)}. Build it with {option}={wanted}."
                )


def _get_head_dim(d_model: int, num_heads: int, kv_heads: int, head_dim: int | None) -> int:
    for name, value in (("d_model", d_model), ("num_heads", num_heads), ("num_kv_heads", kv_heads)):
        check_positive(value, name, "MultiheadAttention")
    if num_heads % kv_heads:
        raise ValueError(
            f"MultiheadAttention: num_kv_heads must divide num_heads = {num_heads}, because each"
            f" serves equally many queries; got {kv_heads}."
        )
    if head_dim is None and d_model % num_heads:
        raise ValueError(
            f"MultiheadAttention: d_model must be divisible by num_heads = {num_heads}, because"
            f" heads are equally wide; got {d_model}. Pass head_dim=."
        )
    head_dim = d_model // num_heads if head_dim is None else head_dim
    check_positive(head_dim, "head_dim", "MultiheadAttention")
    return head_dim
