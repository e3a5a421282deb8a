"""Run models on PaddlePaddle: a model runner for each kind of device.

Making a model runner imports PaddlePaddle. Importing this room does not.
"""

from .model import Model, Row, Sampled
from .model_runner import ModelRunner
from .platforms import CPUModelRunner, GPUModelRunner, MetaxModelRunner, XPUModelRunner, runner_for

__all__ = [
    "CPUModelRunner",
    "GPUModelRunner",
    "MetaxModelRunner",
    "Model",
    "ModelRunner",
    "Row",
    "Sampled",
    "XPUModelRunner",
    "runner_for",
]
