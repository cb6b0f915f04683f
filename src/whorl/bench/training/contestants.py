"""Contestants of the training benchmark: models, a training step, and checks before timing."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from whorl.bench.contestants import Contestant, ContestantMakers
from whorl.lab.config import ModelConfig
from whorl.lab.model import Model

from .baseline import STD, Baseline
from .plan import BASELINE, VOCAB, Cell, Plan

__all__ = ["Trainer", "build_contestants", "build_model", "count_parameters", "find_model_problem"]

_RATE, _CLIP, _SEED = 1e-3, 1.0, 0
_STEPS = 3  # after which the loss must be lower
_NEAR = 0.1  # nats between the first loss and that of an untrained model
_ALIKE = 0.02  # largest relative difference of parameter counts, without those of positions


class Trainer:
    """A model with its optimizer, and one batch that it is trained on in every step."""

    def __init__(self, model: Baseline | Model, cell: Cell) -> None:
        self.model = model
        model.reset_parameters(_SEED)
        source = torch.Generator().manual_seed(_SEED)
        shape = (cell.batch, cell.length)
        self.tokens = torch.randint(VOCAB, shape, generator=source)  # [B, T]
        self.targets = torch.randint(VOCAB, shape, generator=source)
        self.weights = list(model.parameters())
        groups = [
            {"params": [w for w in self.weights if w.dim() > 1], "weight_decay": 0.1},
            {"params": [w for w in self.weights if w.dim() <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=_RATE, betas=(0.9, 0.95), fused=True)

    def loss(self) -> Tensor:
        return self.model.loss(self.tokens, self.targets)

    def step(self) -> float:
        """The loss before one update of the weights, which this does."""
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.weights, _CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def build_contestants(cell: Cell, plan: Plan) -> ContestantMakers:
    """The baseline, then the lab's model with each encoding of the plan."""
    return [(name, partial(_build_contestant, name, cell)) for name in (BASELINE, *plan.encodings)]


def build_model(name: str, cell: Cell) -> Baseline | Model:
    """The model of the contestant ``name``."""
    if name == BASELINE:
        return Baseline(cell)
    config = ModelConfig(encoding=name, layers=cell.layers, width=cell.width, heads=cell.heads)
    return Model(config, vocab=VOCAB, longest=cell.length)


def count_parameters(name: str, cell: Cell) -> tuple[int, int]:
    """Number of parameters of a contestant, and of those that encode positions."""
    with torch.device("meta"):
        named = list(build_model(name, cell).named_parameters())
    positional = sum(w.numel() for n, w in named if n.startswith(("positions", "encoding")))
    return sum(w.numel() for _, w in named), positional


def find_model_problem(trainer: Trainer, cell: Cell) -> str | None:
    """What is wrong with a model; None if it is causal and learns."""
    with torch.no_grad():
        if wrong := _check_causal(trainer):
            return wrong
    # With normal logits of variance v = width std^2 the loss is v / 2 above log(vocab).
    know_nothing = math.log(VOCAB) + cell.width * STD**2 / 2
    loss = trainer.loss()
    if not abs(float(loss.detach()) - know_nothing) <= _NEAR:  # also when NaN
        return f"starts with a loss of {float(loss.detach()):.3f}, not {know_nothing:.3f}"
    loss.backward()  # type: ignore[no-untyped-call]
    for name, weight in trainer.model.named_parameters():
        if weight.grad is None or not bool(weight.grad.isfinite().all()):
            return f"the gradient of {name} is {'none' if weight.grad is None else 'not finite'}"
    trainer.optimizer.zero_grad(set_to_none=True)
    losses = [trainer.step() for _ in range(_STEPS + 1)]
    if not losses[-1] < losses[0]:
        return f"does not learn: the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
    return None


def _build_contestant(name: str, cell: Cell) -> Contestant:
    trainer = Trainer(build_model(name, cell), cell)

    def find_problem() -> str | None:
        return _compare_size(name, cell) or find_model_problem(trainer, cell)

    return Contestant(name, trainer.step, find_problem)


def _compare_size(name: str, cell: Cell) -> str | None:
    """A problem if the model and the baseline differ in size, without parameters of positions."""
    (ours, our_positions), (theirs, their_positions) = (
        count_parameters(name, cell),
        count_parameters(BASELINE, cell),
    )
    ratio = (ours - our_positions) / (theirs - their_positions)
    if abs(ratio - 1) > _ALIKE:
        return f"has {ratio:.3f} times the parameters of the baseline without those of positions"
    return None


def _check_causal(trainer: Trainer) -> str | None:
    """A problem unless changing the last token changes the last logits and no others."""
    before = trainer.model(trainer.tokens)
    changed = trainer.tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % VOCAB
    moved = (trainer.model(changed) - before).abs().amax((0, 2))  # [T]
    if not float(moved[-1]) > 0:
        return "the last logits do not depend on the last token"
    if bool((moved[:-1] > 1e-5 * before.abs().max()).any()):
        return "logits depend on a token that comes after them"
    return None
