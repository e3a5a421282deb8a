"""Continuous batching of OpenVINO GenAI. tokenpipe carries its tokens."""
