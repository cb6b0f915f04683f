"""What a model needs in memory, time and devices, computed from its sizes; nothing is measured.

    model       sizes of a decoder, from a number of parameters or from a config
    encodings   what an encoding and a kind of attention add
    devices     memory, speed and bandwidth of devices, as their vendors publish them
    training    memory and time of a step, and over how many devices
    serving     memory of weights and cache, time of a prompt and of a token
    calibration how far all that is from measurements
    plan        all of it; page: as text

docs/plan.md has the formulas, and how far measurements are from them.
"""

from .devices import DEVICES, Device
from .model import ModelSize
from .plan import ModelPlan, plan_model

__all__ = ["DEVICES", "Device", "ModelPlan", "ModelSize", "plan_model"]
