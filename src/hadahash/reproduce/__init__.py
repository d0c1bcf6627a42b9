"""The paper's tables and figures, made again."""

from .cells import Bench, run_cell, run_recipes
from .everything import everything, in_folder, reproduce
from .recipes import Cell, Recipe, read_recipe, recipes

__all__ = [
    "Bench",
    "Cell",
    "Recipe",
    "everything",
    "in_folder",
    "read_recipe",
    "recipes",
    "reproduce",
    "run_cell",
    "run_recipes",
]
