"""Continuous batching of OpenVINO GenAI, its tokens carried by tokenpipe."""
