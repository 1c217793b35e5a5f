"""Only the C extension is declared here; everything else is in pyproject.toml."""

from setuptools import Extension, setup

COLLECT = "src/traincheck/collect/"
PARTS = (
    "",
    "_calls",
    "_captures",
    "_exit",
    "_faults",
    "_location",
    "_objects",
    "_recorder",
    "_table",
    "_torch",
    "_values",
)

setup(
    ext_modules=[
        Extension(
            "traincheck.collect._probe",
            sources=[f"{COLLECT}_probe{part}.c" for part in PARTS],
            depends=[f"{COLLECT}_probe.h"],
            extra_compile_args=[
                "-O2",
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-fvisibility=hidden",
            ],
        )
    ]
)
