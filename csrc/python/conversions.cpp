#include "csrc/python/conversions.h"

namespace recoup {

void throw_os_error(const std::system_error& error) {
  // Calling OSError returns one of its subclasses. An error that is set by class and arguments
  // would be converted to that subclass later, and a handler in C++ would see another type.
  const py::object made =
      py::reinterpret_borrow<py::object>(PyExc_OSError)(error.code().value(), error.what());
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
  throw py::error_already_set();
}

py::list rows_of(const std::vector<Decision>& decisions) {
  py::list rows;
  for (const Decision& decision : decisions) {
    rows.append(py::make_tuple(static_cast<int>(decision.kind), decision.what, decision.where));
  }
  return rows;
}

py::dict dict_of(const Stats& stats) {
  py::dict dict;
#define RECOUP_FIELD(name) dict[#name] = stats.name
  RECOUP_FIELD(budget_bytes);
  RECOUP_FIELD(peak_bytes);
  RECOUP_FIELD(resident_bytes);
  RECOUP_FIELD(external_bytes);
  RECOUP_FIELD(graph_bytes);
  RECOUP_FIELD(evictions);
  RECOUP_FIELD(evicted_bytes);
  RECOUP_FIELD(drops);
  RECOUP_FIELD(replays);
  RECOUP_FIELD(replay_ns);
  RECOUP_FIELD(replay_cost_ns);
  RECOUP_FIELD(op_count);
  RECOUP_FIELD(op_ns);
  RECOUP_FIELD(workspace_bytes);
  RECOUP_FIELD(search_ns);
  RECOUP_FIELD(bookkeeping_ns);
  RECOUP_FIELD(move_ns);
  RECOUP_FIELD(allocator_ns);
  RECOUP_FIELD(plans);
  RECOUP_FIELD(candidates_visited);
  RECOUP_FIELD(candidates_scored);
  RECOUP_FIELD(moves);
  RECOUP_FIELD(moved_bytes);
  RECOUP_FIELD(in_place_results);
  RECOUP_FIELD(paged_allocations);
  RECOUP_FIELD(paged_bytes);
  RECOUP_FIELD(given_back_bytes);
  RECOUP_FIELD(freezes);
  RECOUP_FIELD(frozen_values);
  RECOUP_FIELD(old_version_copies);
  RECOUP_FIELD(escapes);
  RECOUP_FIELD(imports);
  RECOUP_FIELD(imported_bytes);
  RECOUP_FIELD(spills);
  RECOUP_FIELD(spilled_bytes);
  RECOUP_FIELD(written_behind_bytes);
  RECOUP_FIELD(clean_spills);
  RECOUP_FIELD(fetches);
  RECOUP_FIELD(fetched_bytes);
  RECOUP_FIELD(fetched_ahead_bytes);
  RECOUP_FIELD(unread_copies);
  RECOUP_FIELD(spill_ns);
  RECOUP_FIELD(fetch_ns);
  RECOUP_FIELD(spill_cost_ns);
  RECOUP_FIELD(copy_time_ns);
  RECOUP_FIELD(spill_peak_bytes);
  RECOUP_FIELD(live_values);
  RECOUP_FIELD(live_ops);
  RECOUP_FIELD(lineage_depth_max);
  RECOUP_FIELD(metadata_bytes);
  RECOUP_FIELD(metadata_peak_bytes);
  RECOUP_FIELD(replay_depth_max);
  RECOUP_FIELD(replay_chain_max);
  RECOUP_FIELD(restarts);
  RECOUP_FIELD(allocations);
  RECOUP_FIELD(pressed_allocations);
  RECOUP_FIELD(pressed_free_bytes);
  RECOUP_FIELD(made_room_bytes);
  RECOUP_FIELD(misfits);
  RECOUP_FIELD(misfit_ppm);
  RECOUP_FIELD(foreseen_steps);
  RECOUP_FIELD(eviction_lists);
  RECOUP_FIELD(given_up_lists);
  RECOUP_FIELD(left_steps);
  RECOUP_FIELD(listed_evictions);
  RECOUP_FIELD(planned_blocks);
  RECOUP_FIELD(misplaced_blocks);
  RECOUP_FIELD(followed_steps);
  RECOUP_FIELD(followed_expected_ns);
  RECOUP_FIELD(followed_cost_ns);
  RECOUP_FIELD(planning_ns);
  RECOUP_FIELD(replay_checks);
#undef RECOUP_FIELD
  return dict;
}

}  // namespace recoup
