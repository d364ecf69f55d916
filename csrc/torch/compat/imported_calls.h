// Redirects calls of a function between shared libraries to another function.
#pragma once

#include <span>

namespace recoup::detail {

struct ImportedCall {
  const char* symbol;  // the linker's name of the function
  void* instead;
};

// Redirects calls of these symbols in every loaded library that imports one of them. recoup's own
// library keeps calling the original functions. A later call redirects the libraries that were
// loaded since; it costs nothing if there are none. `calls` must be the same each time.
void redirect_imports(std::span<const ImportedCall> calls);

}  // namespace recoup::detail
