"""The options of ``install``, checked."""

from dataclasses import dataclass
from typing import Literal

from whorl._support.words import quote
from whorl.encodings import Encoding
from whorl.scaling import Scaling
from whorl.types import Impl, Precision

__all__ = ["InstallOptions", "KeyForm"]

#: How a model caches its keys.
KeyForm = Literal["rotated", "unrotated"]


@dataclass(frozen=True)
class InstallOptions:
    """What the caller of ``install`` asked for; ``install`` says what each means."""

    encoding: Encoding | None = None
    scaling: Scaling | None = None
    precision: Precision = "float32"
    impl: Impl = "auto"
    keys: KeyForm = "rotated"

    def __post_init__(self) -> None:
        if self.encoding is not None and not isinstance(self.encoding, Encoding):
            raise TypeError(
                "whorl.hf.install: encoding must be an encoding such as whorl.ALiBi(32), or None"
                f" for that of the model; got {quote(self.encoding)}."
            )
        if self.encoding is not None and self.encoding.acts("embed"):
            raise ValueError(
                f"whorl.hf.install: encoding must act in attention; {quote(self.encoding)} is added"
                " to the embeddings. Change the embeddings of the model instead."
            )
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise TypeError(
                "whorl.hf.install: scaling must be a scaling such as whorl.YaRN(4.0), or None for"
                f" that of the config; got {quote(self.scaling)}."
            )
        if self.encoding is not None and self.scaling is not None:
            raise ValueError(
                "whorl.hf.install: pass encoding or scaling, not both; a rotary encoding takes its"
                " own scaling=."
            )
        for name, known in (
            ("precision", ("float32", "float64")),
            ("impl", ("auto", "native", "reference")),
            ("keys", ("rotated", "unrotated")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"whorl.hf.install: {name} must be one of {', '.join(known)}; got"
                    f" {quote(getattr(self, name))}."
                )
