"""Learned: add a trained row for each position to the token embeddings.

    embed(x)[t] = x[t] + weight[p_t]      weight [max_length, dim]

Gehring et al. 2017, Convolutional Sequence to Sequence Learning, https://arxiv.org/abs/1705.03122;
Devlin et al. 2018, BERT, https://arxiv.org/abs/1810.04805. ``resize`` takes a trained table to
another length, by interpolation or by Su 2020, https://kexue.fm/archives/7947 (hierarchical).

A position without a row is an error: nothing is clamped, wrapped or cut off.
"""

import dataclasses
import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, NoReturn, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl._support.options import (
    PositiveInt,
    PositiveNumber,
    PositiveSize,
    check_choice,
    check_number,
)
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.kernels import tables

from ._absolute import Absolute
from ._sinusoid import compute_frequencies, compute_sinusoids
from .base import Card, Config, register, take_options
from .rotary.call import ResolvedPositions

__all__ = ["Learned", "LearnedConfig"]

Init = Literal["normal", "truncated_normal", "sinusoidal", "zeros"]
Resize = Literal["linear", "cubic", "hierarchical"]


@dataclass(frozen=True)
class LearnedConfig(Config):
    """Options of Learned, checked on construction; ``Learned`` says what they mean."""

    dim: PositiveSize
    _: KW_ONLY
    max_length: PositiveSize
    init: Init = "normal"
    std: PositiveNumber = 0.02

    def __post_init__(self) -> None:
        if self.std == 0:
            raise ValueError(
                f"Learned: std must be a finite number above 0; got {self.std!r}."
                " Rows of zeros are init='zeros'."
            )
        super().__post_init__()
        if self.init == "sinusoidal" and self.dim % 2:
            raise ValueError(
                "Learned: init='sinusoidal' needs an even dim, because every frequency has a sine"
                f" and a cosine; got {self.dim}. Use init='normal'."
            )


@register("learned")
class Learned(Absolute):
    """A trained table of position embeddings.

    Positions are integers in 0 .. max_length - 1, others raise ValueError. In compiled code, where
    their values are not known, PyTorch's own index error takes its place at run time.

    Args:
        dim: channels of the token embeddings, E.
        max_length: rows of the table.
        init: "normal"; "truncated_normal", cut at two std (BERT, ViT); "sinusoidal", the rows of
            ``Sinusoidal(dim)`` scaled to a root mean square of std; "zeros".
        std: size of the initial rows, but for "zeros".

    The parameter is ``weight``, as of ``nn.Embedding``, so tables of other libraries load as they
    are: ``learned.load_state_dict(gpt2.wpe.state_dict())``, BERT's ``position_embeddings`` alike.
    OPT, BART and RoBERTa keep position p in row p + 2: give ``{"weight": theirs.weight[2:]}``.

    >>> import torch, whorl
    >>> encoding = whorl.make("learned", dim=4, max_length=512)
    >>> encoding.embed(torch.zeros(2, 3, 4), offset=509).shape  # [B, T, E]
    torch.Size([2, 3, 4])
    >>> longer = encoding.resize(2048, "hierarchical")
    >>> longer
    Learned(4, max_length=2048)
    >>> torch.equal(longer.weight[:512], encoding.weight)
    True
    """

    fractional = False
    card: ClassVar[Card] = Card(
        formula="x + weight[p]",
        paper="Gehring et al. 2017",
        url="https://arxiv.org/abs/1705.03122",
        relative=False,
        longer="no",
        linear_attention="yes",
        many_axes=False,
        memory="none; max_length E parameters",
        compute="none; B T E once at the input",
    )

    config: LearnedConfig

    @take_options(LearnedConfig)
    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.empty(self.config.max_length, self.config.dim))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start the table afresh, as is needed after ``to_empty``."""
        std = self.config.std
        match self.config.init:
            case "normal":
                nn.init.normal_(self.weight, std=std)
            case "truncated_normal":
                nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)
            case "zeros":
                nn.init.zeros_(self.weight)
            case "sinusoidal":
                count, dim = self.weight.shape
                angles = tables.compute_angles(
                    torch.arange(count, device="cpu"),
                    compute_frequencies(dim, 10_000.0, "paper", "float64"),
                )
                scale = std * math.sqrt(2)  # the mean square of a sine and its cosine is 1/2
                rows = compute_sinusoids(angles, "interleaved", "sin", scale, torch.float64)
                self.weight.copy_(rows)

    @torch.no_grad()
    def resize(self, new_length: int, mode: Resize = "linear", *, alpha: float = 0.4) -> "Learned":
        """A new encoding of ``new_length`` rows made from these; this one stays as it is.

        "linear" and "cubic" (Keys' kernel, a = -0.75, as in ``F.interpolate``) stretch the table:
        the first and the last row keep their place at the ends, all others move. Fine-tune.
        "hierarchical" keeps all n rows at their positions and makes up to n^2 by combining two,

            row(i n + j) = alpha u_i + (1 - alpha) u_j
            u_i = (row(i) - alpha row(0)) / (1 - alpha)

        so inputs of up to n tokens give what they gave. Computed in float64, rounded once. Dtype,
        device, requires_grad and training mode carry over; gradients do not flow back, and an
        optimizer must be told of the new parameter.
        """
        self._check_resize(new_length, mode, alpha)
        with torch.device("meta"):  # no memory and no random numbers for rows that are replaced
            new = type(self)(**dataclasses.asdict(self.config) | {"max_length": new_length})
        if self.weight.is_meta:
            rows = self.weight.new_empty(new_length, self.config.dim)
        else:
            rows = self.weight.to("cpu", torch.float64)  # the one device sure to have float64
            if mode == "hierarchical":
                rows = _combine_rows(rows, new_length, alpha)
            else:
                rows = _interpolate_rows(rows, new_length, mode)
        new.weight = nn.Parameter(rows.to(self.weight), requires_grad=self.weight.requires_grad)
        return new.train(self.training)

    def _check_resize(self, new_length: int, mode: Resize, alpha: float) -> None:
        check_number(new_length, PositiveInt, "new_length", "Learned.resize")
        check_choice(mode, get_args(Resize), "mode", "Learned.resize")
        if mode != "hierarchical":
            return
        if not isinstance(alpha, float) or not 0 < alpha < 1 or alpha == 0.5:
            raise ValueError(
                "Learned.resize: alpha must be a float between 0 and 1 other than 0.5, at which"
                f" positions i n + j and j n + i would share a row; got {quote(alpha)}."
            )
        known = self.config.max_length
        if new_length > known**2:
            raise ValueError(
                f"Learned.resize: mode='hierarchical' takes {known} rows to {known}^2 = {known**2}"
                f" at most, because it combines two of them; got {new_length}."
                " Use mode='linear' or 'cubic'."
            )

    def _get_rows(self, where: ResolvedPositions, length: int, x: Tensor) -> Tensor:
        if self.weight.device != x.device:
            raise ValueError(
                f"Learned: the table is on {self.weight.device} but x is on {x.device};"
                f" use .to({str(x.device)!r}) on the module."
            )
        positions, first = where
        known = self.config.max_length
        compiling = torch.compiler.is_compiling()
        if positions is None:
            if not compiling:
                if length and (first < 0 or first + length > known):
                    self._raise_outside(first, first + length - 1)
                return self.weight[first : first + length]
            positions = torch.arange(first, first + length, device=x.device)
        if positions.is_floating_point():
            raise TypeError(
                "Learned: positions must be integers, because each is a row of the table; got"
                f" {positions.dtype}. Use positions.long(), or Sinusoidal for fractions."
            )
        if positions.numel() and has_values(positions):
            low, high = map(int, positions.aminmax())
            if low < 0 or high >= known:
                self._raise_outside(low, high)
        return F.embedding(positions, self.weight)  # unlike weight[positions] it wraps no -1

    def _raise_outside(self, low: int, high: int) -> NoReturn:
        known = self.config.max_length
        remedy = (
            "count them from 0"
            if low < 0
            else f"make the table longer with resize({high + 1}, ...), or train with a larger"
            " max_length"
        )
        raise ValueError(
            f"Learned: positions must lie in 0 .. {known - 1}, because the table has max_length ="
            f" {known} rows; got {low} to {high}; {remedy}."
        )


def _interpolate_rows(rows: Tensor, length: int, mode: Literal["linear", "cubic"]) -> Tensor:
    """[n, dim] -> [length, dim]; the ends stay at the ends."""
    line = rows.T.unsqueeze(0)  # [1, dim, n]
    if mode == "linear":
        resized = F.interpolate(line, length, mode="linear", align_corners=True)
    else:  # PyTorch has cubic interpolation for two axes only
        plane = line.unsqueeze(-1)
        resized = F.interpolate(plane, (length, 1), mode="bicubic", align_corners=True)[..., 0]
    return resized[0].T.contiguous()


def _combine_rows(rows: Tensor, length: int, alpha: float) -> Tensor:
    """[n, dim] -> [length, dim], length <= n^2; the first n rows stay, to the last bit."""
    known = rows.shape[0]
    parts = (rows - alpha * rows[0]) / (1 - alpha)
    index = torch.arange(min(known, length), length, device=rows.device)
    beyond = alpha * parts[index // known] + (1 - alpha) * parts[index % known]
    return torch.cat((rows[:length], beyond))
