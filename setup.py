"""Only the C extension is declared here; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "traincheck.collect._probe",
            sources=["src/traincheck/collect/_probe.c"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"],
        )
    ]
)
