"""Only what pyproject.toml cannot say: the small compiled library, which is optional.

Without a C compiler the installation succeeds and hadahash uses numpy. The library does not use
Python's interface, so one build works with every Python from 3.10 on.
"""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


NATIVE = "src/hadahash/native"


class BuildLibrary(build_ext):
    """Build a plain shared library, loaded by ctypes: it has no PyInit function to export."""

    def get_export_symbols(self, ext):
        """Return the functions of the library, without PyInit."""
        return ext.export_symbols


setup(
    ext_modules=[
        Extension(
            "hadahash.native._hamming",
            sources=[
                f"{NATIVE}/{name}.c"
                for name in ("hamming", "search", "route", "pairs", "ranked", "resize")
            ],
            depends=[f"{NATIVE}/{name}.h" for name in ("hamming", "neon", "search", "ranked")],
            extra_compile_args=["-O3", "-std=c99", "-ffp-contract=off"],
            export_symbols=[
                "hadahash_interface",
                "hadahash_cpu_level",
                "hadahash_level_name",
                "hadahash_count_distances",
                "hadahash_scan",
                "hadahash_probe",
                "hadahash_scan_remaining",
                "hadahash_near_pairs",
                "hadahash_ranked",
                "hadahash_points",
                "hadahash_average_rows",
                "hadahash_average_columns",
            ],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
