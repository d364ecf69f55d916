"""The networks that benches and tests train. They do not depend on recoup.

A net and its data are made from seeds, so two trainings of it are the same program.
"""

from recoup.bench.nets.net import Batch, Net
from recoup.bench.nets.small import NETS, net_named

__all__ = ["NETS", "Batch", "Net", "net_named"]
