"""What a cache must give: unrotated keys in lists, rotated afresh in float64, by definition."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

import whorl
from whorl.attention.cache.kv_cache import CacheStep, KVCache

D = 8


def tokens(
    batch: int, count: int, seed: int, dtype: torch.dtype, heads: int = 2, groups: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [B, H, T, D] of random tokens; values are narrower."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, heads, count, D), (batch, groups, count, D), (batch, groups, count, 3))
    q, k, v = (torch.randn(*s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)
    return q, k, v


def scores(
    encoding: whorl.Encoding | None, q: Tensor, k: Tensor, at: Tensor, keys_at: Tensor, context: int
) -> Tensor:
    """q [H, T, D], k [H, S, D] at positions [T] and [S]: [H, T, S], pair by pair; half layout."""
    if encoding is None:
        return q @ k.mT
    assert isinstance(encoding, whorl.RoPE | whorl.XPos)
    f = encoding.frequencies(context)
    distance = (at[:, None] - keys_at[None, :]).double()[..., None]  # [T, S, 1]
    factor = torch.polar(torch.ones(()).double(), distance * f.inv_freq)
    if isinstance(encoding, whorl.XPos):
        gamma, span = encoding.config.gamma, encoding.config.scale_base
        zeta = (torch.arange(0, D, 2).double() / D + gamma) / (1 + gamma)
        factor = factor * zeta ** (distance.clamp(min=0) / span)
    pairs = [torch.complex(x[..., : D // 2], x[..., D // 2 :]) for x in (q, k)]
    product = pairs[0][:, :, None] * pairs[1].conj()[:, None]  # [H, T, S, P]
    return (product * factor).sum(-1).real * float(f.attention_scale) ** 2


def weighed(score: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Softmax attention [H, T, Dv]; 0 where nothing is seen."""
    weights = (score / D**0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    return weights.nan_to_num(0.0) @ v


def seen(at: Tensor, keys_at: Tensor, window: int | None, sinks: int) -> Tensor:
    """[T, S]: causal, within the window or a sink."""
    distance = at[:, None] - keys_at[None, :]
    near = torch.ones_like(distance, dtype=torch.bool) if window is None else distance < window
    return (distance >= 0) & (near | ((keys_at >= 0) & (keys_at < sinks)))


def attended(step: CacheStep, cache: KVCache) -> Tensor:
    """Attention over what a cache returned, in float64: [B, H, T, Dv]."""
    outs = []
    for row in range(step.q.shape[0]):
        at, keys_at = (x if x.dim() == 1 else x[row] for x in (step.positions, step.key_positions))
        q, k, v = (x[row].double() for x in (step.q, step.k, step.v))
        k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
        mask = seen(at, keys_at, cache.window, cache.sinks)
        if step.open:
            assert mask.all() or (step.valid is not None and mask[:, step.valid[row]].all())
        if step.valid is not None:
            mask = mask & step.valid[row]
        outs.append(weighed(q @ k.mT, v, mask))
    return torch.stack(outs)


@dataclass
class Row:
    """The tokens of one sequence: unrotated keys, values, positions."""

    k: list[Tensor] = field(default_factory=list)  # [G, D] each
    v: list[Tensor] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    next: int = 0
    # Tokens and next position: at first or when the window last dropped some; before the last call.
    before: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def keep(self, index: list[int]) -> None:
        self.k, self.v = ([x[n] for n in index] for x in (self.k, self.v))
        self.at = [self.at[n] for n in index]

    def call(self, lost: bool, count: int) -> None:
        """Remember how it is before a call; what came before a loss cannot come back."""
        here = (len(self.at), self.next)
        if lost or count:
            self.before = [here if lost else self.before[0], here]

    def undo(self, length: int) -> None:
        """Go back to before the call, then take again what is still wanted of it."""
        if self.before[-1][0] > length:
            self.before = self.before[:1]
        first, self.next = self.before[-1]
        self.keep(list(range(length)))
        for place in self.at[first:]:
            self.next = max(self.next, int(place) + 1)


class Reference:
    """A cache that keeps unrotated keys in lists and rotates all of them afresh at every call."""

    def __init__(self, cache: KVCache, batch: int) -> None:
        self.cache, self.encoding = cache, cache.encoding
        self.rows = [Row() for _ in range(batch)]

    @property
    def length(self) -> int:
        return max(len(row.at) for row in self.rows)

    def update(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Attention of every query; those of padding give 0."""
        outs = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
        for b, row in enumerate(self.rows):
            window, sinks = self.cache.window, self.cache.sinks
            lost = window is not None and len(row.at) > sinks + window - 1
            if window is not None and lost:
                last = range(len(row.at) - window + 1, len(row.at))
                row.keep([*range(sinks), *last])
            real = range(k.shape[2]) if mask is None else mask[b].nonzero().flatten().tolist()
            row.call(lost, len(real))
            for t in real:
                place = row.next if positions is None else float(positions[b, t])
                row.k.append(k[b, :, t].double())
                row.v.append(v[b, :, t].double())
                row.at.append(place)
                row.next = max(row.next, int(place) + 1)
            if len(real):
                outs[b][:, list(real)] = self.attend(row, q[b][:, list(real)].double(), len(real))
        return outs

    def attend(self, row: Row, q: Tensor, count: int) -> Tensor:
        sinks, cache = self.cache.sinks, self.cache
        keys_at = torch.tensor(row.at).double()
        at, context = keys_at[-count:].clone(), max(1, row.next)
        if cache.config.placement == "in_cache":
            if len(row.at) > sinks:
                keys_at[:sinks] = keys_at[sinks] - sinks + torch.arange(sinks)
            at, keys_at, context = at - keys_at[0], keys_at - keys_at[0], len(row.at)
        if cache.config.frequencies == "stepped":
            context = stepped(context, cache.config.steps, cache.encoding)
        k, v = (torch.stack(x, 1).repeat_interleave(q.shape[0], 0) for x in (row.k, row.v))
        score = scores(self.encoding, q, k, at, keys_at, context)
        return weighed(score, v, seen(at, keys_at, cache.window, sinks))

    def crop(self, length: int | Tensor) -> bool:
        """Whether it can be done: not to before a window has dropped something."""
        longest, kept = self.length, []
        for b, row in enumerate(self.rows):
            if isinstance(length, Tensor):
                kept.append(int(length[b]))
            else:
                gone = -length if length < 0 else longest - length
                kept.append(max(0, len(row.at) - gone))
        pairs = list(zip(self.rows, kept, strict=True))
        if any(n < row.before[0][0] for row, n in pairs):
            return False
        for row, n in pairs:
            if n < len(row.at):
                row.undo(n)
        return True

    def evict(self, gone: Tensor) -> None:
        longest = self.length
        for b, row in enumerate(self.rows):
            pad = longest - len(row.at)
            row.before = [(n - int(gone[b, pad : pad + n].sum()), after) for n, after in row.before]
            row.keep([n for n in range(len(row.at)) if not gone[b, n + pad]])

    def reorder(self, index: list[int]) -> None:
        old = self.rows
        self.rows = [
            Row(
                **{**vars(old[n]), **{x: list(vars(old[n])[x]) for x in ("k", "v", "at", "before")}}
            )
            for n in index
        ]


def stepped(length: int, steps: int, encoding: whorl.Encoding | None) -> int:
    """The next length on a grid of ``steps`` even steps for each doubling; up to L at most L."""
    top = 1
    while top < length:
        top *= 2
    unit = max(1, top // 2 // steps)
    above = min(n for n in range(length, 2 * length + 1) if n % unit == 0)
    trained = (
        getattr(getattr(encoding.config, "scaling", None), "original_context", None)
        if encoding
        else None
    )
    return min(above, trained) if trained and length <= trained else above
