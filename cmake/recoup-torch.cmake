# Finds PyTorch, for recoup's own build and for programs that use an installed recoup.
#
# Note [No find_package(Torch)]: TorchConfig.cmake of a torch with CUDA, the default of PyPI for Linux,
# fails if the CUDA Toolkit is not installed, and it carries flags of torch's own build. recoup needs
# only two include folders and two libraries, which are the same in every build of torch.

# Sets `result` to the version of the PyTorch in a folder, such as 2.13.0, or to nothing if there is none.
function(recoup_torch_version root result)
  set(version "")
  # The second path is that of versions before 2.9.
  foreach(header include/torch/headeronly/version.h include/torch/csrc/api/include/torch/version.h)
    if(NOT version AND EXISTS ${root}/${header} AND EXISTS ${root}/lib/libtorch_cpu.so)
      file(STRINGS ${root}/${header} parts REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM parts REPLACE ".* ([0-9]+)$" "\\1")
      list(JOIN parts "." version)
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Sets `result` to 2.13 for 2.13.0.
function(recoup_minor_version version result)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  set(${result} "${minor}" PARENT_SCOPE)
endfunction()

# Sets `result` to the folder of a Python's torch package, or to nothing.
function(recoup_torch_of_python python result)
  set(find "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
  set(root "")
  # pip's build isolation hides installed packages with variables that -E ignores, so try -E first.
  foreach(flag -E -B)
    if(NOT root)
      execute_process(
        COMMAND ${python} ${flag} -c "${find}"
        OUTPUT_VARIABLE root ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    endif()
  endforeach()
  set(${result} "${root}" PARENT_SCOPE)
endfunction()

# Makes targets that link this one compile with the PyTorch in a folder, and link it.
function(recoup_link_torch target root)
  target_include_directories(
    ${target} SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
  target_link_libraries(${target} INTERFACE ${root}/lib/libtorch_cpu.so ${root}/lib/libc10.so)
  # torch's CUDA libraries depend on others that are found when they are loaded, but not when linking.
  target_link_options(${target} INTERFACE LINKER:--allow-shlib-undefined)
endfunction()
