"""Only what pyproject.toml cannot say: the small compiled library, which is optional.

Without a C compiler the install goes through and hadahash counts with numpy. The library uses nothing of Python, so one
build serves every Python from 3.10 on.
"""

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """Builds a plain shared library, loaded by ctypes: it has no PyInit function to export."""

    def get_export_symbols(self, ext):
        return ext.export_symbols


setup(
    ext_modules=[
        Extension(
            "hadahash.native._hamming",
            sources=[f"src/hadahash/native/{name}.c" for name in ("hamming", "search", "route", "ranked")],
            depends=[f"src/hadahash/native/{name}.h" for name in ("hamming", "search", "ranked")],
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-std=c99", "-ffp-contract=off"],
            export_symbols=[
                "hadahash_interface",
                "hadahash_cpu_level",
                "hadahash_count_distances",
                "hadahash_scan",
                "hadahash_probe",
                "hadahash_scan_remaining",
                "hadahash_ranked",
                "hadahash_points",
            ],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
