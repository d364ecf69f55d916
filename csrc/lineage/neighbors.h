// The neighbors of a value in the lineage graph.
#pragma once

#include <utility>

#include "csrc/lineage/lineage.h"

namespace recoup::detail {

// Calls function(neighbor) for the inputs of the value's producer.
template <class Function>
void for_each_parent(const Lineage& lineage, ValueId value, Function&& function) {
  if (lineage[value].producer.valid()) {
    lineage.for_each_input(lineage[value].producer, function);
  }
}

// Calls `function` for the outputs of its consumers.
template <class Function>
void for_each_child(const Lineage& lineage, ValueId value, Function&& function) {
  lineage.for_each_consumer(value,
                            [&](OpId consumer) { lineage.for_each_output(consumer, function); });
}

}  // namespace recoup::detail
