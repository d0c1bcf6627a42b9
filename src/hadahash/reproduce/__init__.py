"""The paper's tables and figures, made again."""

from .cells import Bench, run_cell, run_recipes
from .recipes import Cell, Recipe, read_recipe, recipes
from .tables import write_page

__all__ = ["Bench", "Cell", "Recipe", "read_recipe", "recipes", "run_cell", "run_recipes", "write_page"]
