"""Name the runner of each platform. What differs between them is in `devices.FACTS`."""

from __future__ import annotations

from tokenpipe.errors import ConfigError

from .model_runner import ModelRunner


class CPUModelRunner(ModelRunner):
    """Runs on the CPU, where a launch returns when it is done: depth 0 unless asked otherwise."""

    platform = "cpu"


class GPUModelRunner(ModelRunner):
    """Runs on an NVIDIA GPU; copies go to page-locked memory."""

    platform = "gpu"


class XPUModelRunner(ModelRunner):
    """Runs on a Kunlun XPU."""

    platform = "xpu"


class MetaxModelRunner(ModelRunner):
    """Runs on a Metax GPU, a custom device of Paddle's."""

    platform = "metax_gpu"


_RUNNERS = {
    runner.platform: runner
    for runner in (CPUModelRunner, GPUModelRunner, XPUModelRunner, MetaxModelRunner)
}


def runner_for(platform: str) -> type[ModelRunner]:
    """Return the runner of a platform as the topology names it."""
    try:
        return _RUNNERS[platform]
    except KeyError:
        raise ConfigError(f"no runner for {platform!r}: one of {', '.join(_RUNNERS)}") from None
