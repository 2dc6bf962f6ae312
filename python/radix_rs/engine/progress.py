"""A bar for people who wait."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Progress:
    """Counts finished requests and shows tokens per second; silent if not wanted, or nobody looks.

    Parameters
    ----------
    total
        Requests.
    is_shown
        Whether there is a bar at all; where standard error is no terminal there is none.
    """

    def __init__(self, total: int, *, is_shown: bool) -> None:
        self._bar: Any = None
        if is_shown and total:
            from tqdm.auto import tqdm

            # None: shown on a terminal only, not in pipes and logs.
            self._bar = tqdm(
                total=total, unit="request", desc="generating", leave=False, disable=None
            )

    def update(self, num_finished: int, num_tokens: int) -> None:
        """Show how far it is.

        Parameters
        ----------
        num_finished
            Requests that have ended.
        num_tokens
            Tokens sampled so far, over all requests.
        """
        if self._bar is None or self._bar.disable:
            return
        seconds = self._bar.format_dict["elapsed"]
        rate = num_tokens / seconds if seconds else 0.0
        self._bar.set_postfix_str(f"{num_tokens} tokens, {rate:.0f}/s", refresh=False)
        self._bar.update(num_finished - self._bar.n)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
