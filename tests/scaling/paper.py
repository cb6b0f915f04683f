"""The equations of Peng et al. 2023, YaRN, https://arxiv.org/abs/2309.00071, in plain floats."""

import math

__all__ = ["attention_scale", "ntk_by_parts"]


def ntk_by_parts(
    rotary_dim: int, base: float, s: float, trained: int, alpha: float = 1.0, beta: float = 32.0
) -> list[float]:
    """h(theta_d) = (1 - gamma) theta_d / s + gamma theta_d, gamma(L / lambda_d); section 3.2."""
    scaled = []
    for d in range(rotary_dim // 2):
        theta = base ** (-2 * d / rotary_dim)
        r = trained / (2 * math.pi / theta)
        if r < alpha:
            gamma = 0.0
        elif r > beta:
            gamma = 1.0
        else:
            gamma = (r - alpha) / (beta - alpha)
        scaled.append((1 - gamma) * theta / s + gamma * theta)
    return scaled


def attention_scale(s: float) -> float:
    """sqrt(1 / t) = 0.1 ln s + 1 (section 3.4)."""
    return 0.1 * math.log(s) + 1
