"""Tell a training that diverges while its loss is still a number. Pure.

A training that diverges ends as NaN or, where rectifiers die on the way, with a huge loss for
good; either way its step times are worth no more, and its result is that it cannot train.
"""

from __future__ import annotations

from collections import deque

# More than half of so many steps in a row: fewer can be a spike that the training recovers from.
WINDOW_STEP_COUNT = 20
# A classifier that knows nothing has a loss of ln(classes), 0.7 to 7; trained in earnest it never
# comes near to a thousand times that, however rough the first steps with a large batch are.
FACTOR = 1e3
# A loss that happens to be tiny at first may well grow a thousandfold.
SMALLEST_REFERENCE = 1.0


class LossWatch:
    """Follows one rank's train_loss, a mean over examples, step by step."""

    def __init__(self) -> None:
        self.first: float | None = None
        self._limit = 0.0
        self._window: deque[bool] = deque(maxlen=WINDOW_STEP_COUNT)
        self._high_count = 0

    def diverges(self, train_loss: float) -> bool:
        """Take the next step's loss; say whether the median of the last ones is out of proportion.

        It is when more than half of the last 20 lie above a thousand times the first one. Costs
        less than a microsecond, since it counts instead of sorting.
        """
        if self.first is None:
            self.first = train_loss
            self._limit = FACTOR * max(train_loss, SMALLEST_REFERENCE)
        is_high = train_loss > self._limit
        if len(self._window) == WINDOW_STEP_COUNT:
            self._high_count -= self._window[0]
        self._window.append(is_high)
        self._high_count += is_high
        return self._high_count > WINDOW_STEP_COUNT // 2
