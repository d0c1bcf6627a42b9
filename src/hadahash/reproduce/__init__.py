"""The paper's tables, re-run."""

from .cells import Cell, read_recipe, recipes, run_cells
from .tables import write_page

__all__ = ["Cell", "read_recipe", "recipes", "run_cells", "write_page"]
