"""DSDH: deep supervised discrete hashing (Li, Sun, He and Tan, NeurIPS 2017).

DPSH's likelihood, and codes b of +-1 that are variables of their own: mu ||y - W^T b||^2 + nu ||W||^2 + eta ||b - u||^2. W
is a ridge solution and B is solved bit by bit, in one sweep from the last codes, for all training images, every
`dsdh_refresh` steps (about once an epoch). The authors' code solves both anew in every batch, for its images alone: W with a
ridge of .1, where nu / mu is 100 here, and B from 0 in up to 10 sweeps. The network sees the likelihood and eta ||b - u||^2;
without the latter B and W would never reach it. Until they are solved first, the codes are the signs of u; images that have
not been seen yet have no code and no say in W. The network's terms are means, and eta = .1 belongs to them (the authors' 55
to sums). Likelihood, bank and the centred hash layer are DPSH's, with all that is said of them there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import METHODS, Batch, DeepMethod, Task
from .common import CentredLinear, sign
from .dpsh import PairBank
from .sdh import RidgeSolver, solve_codes


@dataclass(frozen=True)
class DSDHSettings:
    dsdh_mu: float = 0.01  # weight of the classifier's error
    dsdh_nu: float = 1.0  # weight of ||W||^2
    dsdh_eta: float = 0.1  # weight of the distance between codes and outputs
    dsdh_refresh: int = 40  # steps between two solutions of B and W


@METHODS.register("dsdh")
class DSDH(DeepMethod):
    Settings = DSDHSettings
    codes: Tensor

    def __init__(self, task: Task, settings: DSDHSettings) -> None:
        super().__init__(task, settings)
        self.hash = CentredLinear(task.features, task.bits)
        self.bank = PairBank(task)
        codes = torch.zeros(task.train_images, task.bits)  # 0: not solved yet
        self.register_buffer("codes", codes, persistent=False)

    def values(self, features: Tensor) -> Tensor:
        values: Tensor = self.hash(features)
        return values

    @torch.no_grad()
    def before_step(self, step: int, steps: int) -> None:
        if step and step % self.settings.dsdh_refresh == 0:
            mu, nu, eta = self.settings.dsdh_mu, self.settings.dsdh_nu, self.settings.dsdh_eta
            U, Y = self.bank.outputs.double(), self.bank.targets.double()
            seen = U.any(1, keepdim=True)
            B = (
                torch.where(self.codes == 0, sign(U), self.codes.double()) * seen
            )  # a row of 0 stays 0 and adds nothing to W
            W = RidgeSolver(B, nu / mu).solve(Y)
            self.codes.copy_(solve_codes(B, W, Y @ W.T + eta / mu * U, sweeps=1))

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        outputs = self.values(batch.features).to(batch.targets.dtype)
        self.bank.keep(outputs, batch)
        own = self.codes[batch.indices].to(outputs.dtype)
        own = torch.where(own == 0, sign(outputs.detach()), own)
        return {
            "pairs": self.bank.likelihood(outputs, batch),
            "codes": self.settings.dsdh_eta * (outputs - own).square().mean(),
        }
