"""A small real engine: SmolLM2-135M-Instruct on CPUs, served through tokenpipe."""
