"""The runner of each platform. `devices.FACTS` has the differences between platforms."""

from __future__ import annotations

from tokenpipe.errors import ConfigError

from .model_runner import ModelRunner


class CPUModelRunner(ModelRunner):
    """Runs on the CPU. A launch returns when it is done, so the default depth is 0."""

    platform = "cpu"


class GPUModelRunner(ModelRunner):
    """Runs on an NVIDIA GPU. Copies go to page-locked memory."""

    platform = "gpu"


class XPUModelRunner(ModelRunner):
    """Runs on a Kunlun XPU."""

    platform = "xpu"


class MetaxModelRunner(ModelRunner):
    """Runs on a Metax GPU, which is a custom device of Paddle."""

    platform = "metax_gpu"


_RUNNERS = {
    runner.platform: runner
    for runner in (CPUModelRunner, GPUModelRunner, XPUModelRunner, MetaxModelRunner)
}


def runner_for(platform: str) -> type[ModelRunner]:
    """Return the runner of a platform. ConfigError if there is none of that name."""
    try:
        return _RUNNERS[platform]
    except KeyError:
        raise ConfigError(f"no runner for {platform!r}: one of {', '.join(_RUNNERS)}") from None
