// Calls of a function between shared libraries go to another function.
#pragma once

#include <span>

namespace recoup::detail {

struct ImportedCall {
  const char* symbol;  // as the linker knows it
  void* instead;
};

// In every library that is loaded now and imports one of these symbols, calls of it go to the
// function that is named here from now on. recoup's own library goes on calling the original.
// Libraries that are loaded later are found by the next call, which costs nothing when there are
// none. `calls` must be the same each time.
void redirect_imports(std::span<const ImportedCall> calls);

}  // namespace recoup::detail
