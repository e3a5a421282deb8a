"""Builds tokenpipe._core from csrc/. Everything else is in pyproject.toml."""

import os
from glob import glob

import numpy
from setuptools import Extension, setup

SANITIZE = os.environ.get("TOKENPIPE_SANITIZE")  # "address,undefined" or "thread"
DEBUG = os.environ.get("TOKENPIPE_DEBUG") or SANITIZE
STRICT = os.environ.get("TOKENPIPE_STRICT") or DEBUG  # warnings are errors for those who develop it

cflags = ["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"]
cflags += ["-O0", "-g3", "-UNDEBUG"] if DEBUG else ["-O3"]
cflags += ["-Werror"] if STRICT else []
ldflags = []
if SANITIZE:
    cflags.append(f"-fsanitize={SANITIZE}")
    ldflags.append(f"-fsanitize={SANITIZE}")

setup(
    license="Apache-2.0",
    ext_modules=[
        Extension(
            "tokenpipe._core",
            sources=sorted(glob("csrc/**/*.c", recursive=True)),
            depends=sorted(glob("csrc/**/*.h", recursive=True)),
            include_dirs=["csrc", numpy.get_include()],
            extra_compile_args=cflags,
            extra_link_args=ldflags,
        )
    ],
)
