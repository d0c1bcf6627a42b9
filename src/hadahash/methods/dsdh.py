"""DSDH: deep supervised discrete hashing (Li, Sun, He and Tan, NeurIPS 2017).

The likelihood of DPSH, and codes b of +-1 that are variables of their own:
mu ||y - W^T b||^2 + nu ||W||^2 + eta ||b - u||^2. W is a ridge solution, and B is solved bit by
bit. The network is trained by the likelihood and eta ||b - u||^2; without the latter B and W would
not influence it.

Deviations from the authors:

* B and W are solved for all training images every `dsdh_refresh` steps (about once per epoch), B in
  one sweep from the last codes. The authors' code solves both anew in every batch for its images
  alone, W with a ridge of .1 (nu / mu is 100 here) and B from 0 in up to 10 sweeps.
* Until they are solved for the first time, the codes are the signs of u. Images that have not been
  seen yet have no code and do not contribute to W.
* The terms of the network are means, and eta = .1 belongs to them. The authors' 55 belongs to sums.
* Likelihood, bank and hash layer are those of DPSH, with the deviations listed there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..settings import Checked, setting
from .base import METHODS, Batch, DeepMethod, Task
from .common import CenteredLinear, sign
from .dpsh import PairBank
from .sdh import RidgeSolver, solve_codes


@dataclass(frozen=True)
class DSDHSettings(Checked):
    """Settings of DSDH."""

    dsdh_mu: float = setting(0.01, "Weight of the classification error of the codes.", gt=0)
    dsdh_nu: float = setting(1.0, "Weight of ||W||^2.", gt=0)
    dsdh_eta: float = setting(0.1, "Weight of the distance of codes and outputs.", ge=0)
    dsdh_refresh: int = setting(40, "Steps between two solutions of B and W.", ge=1)


@METHODS.register("dsdh")
class DSDH(DeepMethod):
    """DSDH: pairwise likelihood, discrete codes and a classifier on them."""

    Settings = DSDHSettings
    codes: Tensor

    def __init__(self, task: Task, settings: DSDHSettings) -> None:
        super().__init__(task, settings)
        self.hash = CenteredLinear(task.features, task.bits)
        self.bank = PairBank(task)
        codes = torch.zeros(task.train_images, task.bits)  # 0: not solved yet
        self.register_buffer("codes", codes, persistent=False)

    def values(self, features: Tensor) -> Tensor:
        """Compute the hash layer u, (n, bits)."""
        values: Tensor = self.hash(features)
        return values

    @torch.no_grad()
    def before_step(self, step: int, steps: int) -> None:
        """Solve B and W every `dsdh_refresh` steps."""
        if step and step % self.settings.dsdh_refresh == 0:
            mu, nu, eta = self.settings.dsdh_mu, self.settings.dsdh_nu, self.settings.dsdh_eta
            U = self.bank.outputs.double()
            seen = U.any(1, keepdim=True)
            # A row of zeros stays zero and does not contribute to W.
            B = torch.where(self.codes == 0, sign(U), self.codes.double()) * seen
            blocks = list(self.bank.blocks())
            BY = torch.stack([B[rows].T @ self.bank.labels(rows, B.dtype) for rows in blocks])
            W = RidgeSolver(B, nu / mu).solve_product(BY.sum(0))
            Q = torch.cat([self.bank.labels(rows, B.dtype) @ W.T for rows in blocks])
            self.codes.copy_(solve_codes(B, W, Q + eta / mu * U, sweeps=1))

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the parts "pairs" and "codes"."""
        values = self.values(batch.features).to(batch.targets.dtype)
        self.bank.store(values, batch)
        codes = self.codes[batch.indices].to(values.dtype)
        codes = torch.where(codes == 0, sign(values.detach()), codes)
        return {
            "pairs": self.bank.likelihood(values, batch),
            "codes": self.settings.dsdh_eta * (values - codes).square().mean(),
        }
