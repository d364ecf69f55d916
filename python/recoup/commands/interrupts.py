"""Interrupts that arrive while a library holds a lock."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def plain_interrupts() -> Iterator[None]:
    """Raises the KeyboardInterrupt in place of an error that was raised while it was handled.

    An interrupt can arrive anywhere, for example within `threading.Condition.wait`, which then
    releases a lock that it does not hold, and raises a RuntimeError.
    """
    try:
        yield
    except Exception as error:
        earlier = error.__context__
        while earlier is not None:
            if isinstance(earlier, KeyboardInterrupt):
                raise earlier from None
            earlier = earlier.__context__
        raise
