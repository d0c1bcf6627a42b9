"""Reproduce the tables and figures of the paper."""

from .all import in_folder, list_targets, run_all
from .cells import RunContext, run_cell, run_recipes
from .recipes import Cell, Recipe, list_recipes, read_recipe

__all__ = [
    "Cell",
    "Recipe",
    "RunContext",
    "in_folder",
    "list_recipes",
    "list_targets",
    "read_recipe",
    "run_all",
    "run_cell",
    "run_recipes",
]
