"""The networks that benches and tests train. Nothing here knows recoup.

A net is built and fed from seeds, so two trainings of it are the same program.
"""

from recoup.bench.nets.net import Batch, Net
from recoup.bench.nets.small import NETS, net_named

__all__ = ["NETS", "Batch", "Net", "net_named"]
