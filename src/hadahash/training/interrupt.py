"""Ctrl-C and SIGTERM during training take effect after the step, once a checkpoint is written."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, NoReturn

from .distributed import ProcessGroup

_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Interrupt:
    """Context manager that defers the two signals, where no other handler is installed.

    A second signal ends a single process at once. With several processes torchrun sends one signal
    more than the terminal, so all are deferred.

    Args:
        processes: The processes that train together.
        hold: Whether to defer signals.
    """

    def __init__(self, processes: ProcessGroup, *, hold: bool) -> None:
        self._processes, self._got = processes, 0
        # Python delivers signals to the main thread only.
        hold = hold and threading.current_thread() is threading.main_thread()
        self._held = [
            number for number, usual in _USUAL.items() if hold and signal.getsignal(number) == usual
        ]

    def __enter__(self) -> Interrupt:
        for number in self._held:
            signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in self._held:
            signal.signal(number, _USUAL[number])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._got = number
        if self._processes.count == 1:
            self.__exit__(None, None, None)

    def should_stop(self) -> bool:
        """Whether any process received a signal; all processes agree after a step."""
        return self._processes.any(self._got > 0)

    def raise_signal(self) -> NoReturn:
        """Apply the signal: SIGTERM ends the process, Ctrl-C raises KeyboardInterrupt."""
        self.__exit__(None, None, None)
        if self._got:
            signal.raise_signal(self._got)
        raise KeyboardInterrupt  # another process received the signal
