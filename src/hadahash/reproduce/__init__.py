"""Reproduce the tables and figures of the paper."""

from .all import in_folder, list_targets, run_all
from .cells import RunContext, run_cell, run_recipes
from .recipes import Cell, Recipe, read_recipe, recipes

__all__ = [
    "Cell",
    "Recipe",
    "RunContext",
    "in_folder",
    "list_targets",
    "read_recipe",
    "recipes",
    "run_all",
    "run_cell",
    "run_recipes",
]
