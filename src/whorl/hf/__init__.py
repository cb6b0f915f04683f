"""whorl inside models of transformers: the same outputs, less time and memory.

>>> from transformers import BloomConfig, BloomModel
>>> import whorl
>>> model = BloomModel(BloomConfig(hidden_size=64, n_head=4, n_layer=1, vocab_size=100))
>>> whorl.hf.install(model)
Installation(BloomModel, family='BLOOM', changes=2)
>>> whorl.hf.uninstall(model)

    installation    install and uninstall
    loading         enable and disable: install in every model that is loaded
    diagnosis       whether a loaded model rotates as its config says
    caches/         caches that hold unrotated keys: streams, frequencies that follow the length
    families/       what changes in which models: one file per family
    interface       the mask and attention functions that transformers calls
    changes         changes of a module that can be undone

transformers is loaded with the first name that is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from whorl._support.extras import import_extra

if TYPE_CHECKING:
    from .caches.recompute import generate_recomputed
    from .caches.sinks import SinkCache
    from .caches.splice import splice
    from .caches.unrotated import UnrotatedCache
    from .diagnosis import LiveDiagnosis, LiveFinding, diagnose
    from .installation import Installation, install, uninstall
    from .loading import Loading, disable, enable

__all__ = [
    "Installation",
    "LiveDiagnosis",
    "LiveFinding",
    "Loading",
    "SinkCache",
    "UnrotatedCache",
    "diagnose",
    "disable",
    "enable",
    "generate_recomputed",
    "install",
    "splice",
    "uninstall",
]

_HOMES = {
    **dict.fromkeys(("LiveDiagnosis", "LiveFinding", "diagnose"), "diagnosis"),
    **dict.fromkeys(("Loading", "disable", "enable"), "loading"),
    "generate_recomputed": "caches.recompute",
    "SinkCache": "caches.sinks",
    "UnrotatedCache": "caches.unrotated",
    "splice": "caches.splice",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        found = import_extra("transformers", by="whorl.hf", extra="hf").__version__
        if int(found.partition(".")[0]) < 5:
            raise ModuleNotFoundError(
                f"whorl.hf needs transformers 5, and {found} is installed: pip install 'whorl[hf]'."
                " Configs of version 4 are read all the same.",
                name="transformers",
            )
        home = import_module(f"{__name__}.{_HOMES.get(name, 'installation')}")
        globals()[name] = getattr(home, name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
