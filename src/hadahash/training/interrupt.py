"""Ctrl-C and SIGTERM while training: they wait until the step is done and a checkpoint written, then have their effect."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch
from torch import distributed

from .distributed import Workers

_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Interrupt:
    """A context in which the two signals are held back, where nobody else handles them.

    A process that is alone gives in at once to a second signal. Of several, torchrun sends each one signal more than the
    terminal does, so all are held back.
    """

    def __init__(self, workers: Workers, device: torch.device, *, hold: bool) -> None:
        self._workers, self._got = workers, 0
        own = (
            hold and threading.current_thread() is threading.main_thread()
        )  # signals reach no other
        self._held = [
            number for number, usual in _USUAL.items() if own and signal.getsignal(number) == usual
        ]
        by_gpu = (
            workers.count > 1 and distributed.get_backend() == "nccl"
        )  # then nothing on the CPU can be sent
        self._device = device if by_gpu else torch.device("cpu")

    def __enter__(self) -> Interrupt:
        for number in self._held:
            signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in self._held:
            signal.signal(number, _USUAL[number])

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._got = number
        if self._workers.count == 1:
            self.__exit__(None, None, None)

    def wanted(self) -> bool:
        """Is one of the processes to stop? All get the same answer after the same step, so that none waits for another."""
        if self._workers.count == 1:
            return self._got > 0
        asked = torch.tensor(float(self._got > 0), device=self._device)
        return float(self._workers.mean({"asked": asked})["asked"]) > 0

    def give_in(self) -> NoReturn:
        """Let the signal have its usual effect: SIGTERM ends the process, Ctrl-C is a KeyboardInterrupt."""
        self.__exit__(None, None, None)
        if self._got:
            signal.raise_signal(self._got)
        raise KeyboardInterrupt  # it was another process that got the signal
