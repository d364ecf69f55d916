# Finds PyTorch, for recoup's own build and for programs that use the recoup that is installed.
#
# Note [No find_package(Torch)]: TorchConfig.cmake of a torch with CUDA, which is what PyPI has for Linux,
# stops where the CUDA Toolkit is not installed, and it carries flags of torch's own build. What recoup
# needs is two include folders and two libraries, the same in every build of torch.

# Sets `result` to the version of the PyTorch in a folder, as in 2.13.0, or to nothing where there is none.
function(recoup_torch_version root result)
  set(version "")
  # The second is its place before 2.9.
  foreach(header include/torch/headeronly/version.h include/torch/csrc/api/include/torch/version.h)
    if(NOT version AND EXISTS ${root}/${header} AND EXISTS ${root}/lib/libtorch_cpu.so)
      file(STRINGS ${root}/${header} parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM parts REPLACE ".* ([0-9]+)$" "\\1")
      list(JOIN parts "." version)
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Sets `result` to 2.13 of 2.13.0.
function(recoup_minor_version version result)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  set(${result} "${minor}" PARENT_SCOPE)
endfunction()

# Sets `result` to the folder of the torch package that a Python has, or to nothing.
function(recoup_torch_of_python python result)
  set(find "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
  set(root "")
  # A build apart (pip's isolation) hides by variables what is installed: -E looks there first.
  foreach(flag -E -B)
    if(NOT root)
      execute_process(
        COMMAND ${python} ${flag} -c "${find}"
        OUTPUT_VARIABLE root ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
  endforeach()
  set(${result} "${root}" PARENT_SCOPE)
endfunction()

# A target that links this one compiles with the PyTorch in a folder, and links it.
function(recoup_link_torch target root)
  target_include_directories(
    ${target} SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
  target_link_libraries(${target} INTERFACE ${root}/lib/libtorch_cpu.so ${root}/lib/libc10.so)
  # With CUDA torch's libraries need more of their kind, which they find when loaded but not when linked.
  target_link_options(${target} INTERFACE LINKER:--allow-shlib-undefined)
endfunction()
