"""Puts conf/ and ray_jobs/ into the wheel as codegrep/conf and codegrep/ray_jobs; everything else is in pyproject.toml.

In a checkout conf/ stands beside the package, where a researcher edits it; an installed package carries its own copy.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    """The usual build, and conf/ with it. An editable install reads the checkout's conf/ and needs no copy."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if not self.editable_mode:
            for folder in ("conf", "ray_jobs"):
                target = Path(self.build_lib) / "codegrep" / folder
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(Path(__file__).parent / folder, target, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithConf})
