"""The lab's RoFormer as a scorer of triplets and labelled texts.

    documents:  each text by itself, v = W mean(encoder(text));
                logits s cos(v_A, v_B) and s cos(v_A, v_C)
    sequences:  the head for classification on the first token of each sequence;
                a triplet is the two sequences "A, B" and "A, C" with one logit each,
                a labelled text is one sequence with a logit for each class

The authors of RoFormer fine-tune on sequences "A, B" and "A, C" with the mean of all tokens and one
logit (Su et al. 2021, https://arxiv.org/abs/2104.09864, and their published finetune_scm.py). A
pre-trained model can do that. A small one that begins with random weights would first have to learn
to compare: documents give it the comparison, and attention over a half of the length.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.lab.roformer import RoFormer, RoFormerClassifier, RoFormerConfig

__all__ = ["DocumentScorer", "SequenceScorer"]

_SCALE = 10.0


class DocumentScorer(nn.Module):
    """Which of two texts is nearer to a third: tokens [3 B, T] to logits [B, 2].

    Rows are A, B, C of the first triplet, A, B, C of the second one, and so on.
    """

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__()
        self.encoder = RoFormer(config)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(
        self, tokens: Tensor, *, mask: Tensor | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        x = self.encoder(tokens, mask=mask, token_types=token_types)  # [3 B, T, C]
        if mask is None:
            mean = x.mean(1)
        else:
            mean = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        vectors = F.normalize(self.project(mean), dim=-1).view(-1, 3, mean.shape[-1])  # [B, 3, C]
        scores = (vectors[:, :1] * vectors[:, 1:]).sum(-1)  # [B, 2]
        logits: Tensor = _SCALE * self.log_scale.exp() * scores
        return logits

    def reset_parameters(self, seed: int) -> None:
        """Set random weights; the projection begins as the identity, which keeps similarities."""
        self.encoder.reset_parameters(seed)
        nn.init.eye_(self.project.weight)
        nn.init.zeros_(self.log_scale)


class SequenceScorer(nn.Module):
    """RoFormer's head for classification: tokens [K B, T] to logits [B, K classes].

    choices: K, the sequences of one example; those of an example follow each other.
    """

    def __init__(self, config: RoFormerConfig, *, choices: int = 1, classes: int = 1) -> None:
        super().__init__()
        self.choices = choices
        self.classifier = RoFormerClassifier(config, classes=classes)

    def forward(
        self, tokens: Tensor, *, mask: Tensor | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        logits: Tensor = self.classifier(tokens, mask=mask, token_types=token_types)
        return logits.reshape(len(tokens) // self.choices, -1)

    def reset_parameters(self, seed: int) -> None:
        """Set random weights, which depend on name, shape and seed but not on the encoding."""
        self.classifier.reset_parameters(seed)
