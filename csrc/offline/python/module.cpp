// recoup.offline._C: Python bindings of the laboratory.
#include "csrc/offline/python/common.h"

PYBIND11_MODULE(_C, module) {
  recoup::bind_trace(module);
  recoup::bind_layout(module);
  recoup::bind_dtr(module);
  recoup::bind_order(module);
}
