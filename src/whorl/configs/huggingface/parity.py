"""Where transformers 5.22.2 departs from what a config says; parity="transformers" goes with it."""

__all__ = ["PARITY"]

#: By a short name; docs/configs.md has a row for each, and tests/configs a test that shows both.
PARITY: dict[str, str] = {
    "nested-truncate": (
        "YaRN's truncate is looked for beside the parameters of each layer type, not inside."
    ),
    "batch-length": ("Dynamic NTK stretches all rows of a batch by the length of the longest one."),
    "batch-switch": "LongRoPE takes the long factors for all rows if one of them needs them.",
    "partial-ignored": (
        "Classes that know no partial_rotary_factor ignore it with rope_type 'default' and rotate"
        " the whole head."
    ),
    "old-type-key": (
        "Families with parameters per layer type overlook an old rope_scaling that says 'type',"
        " not 'rope_type', and do not scale."
    ),
    "olmo3-base": "An old rope_theta of OLMo 3 does not reach its sliding layers.",
    "phimoe-long-factors": (
        "Phi-3.5-MoE changes its attention scale past the original length, not its frequencies."
    ),
}
