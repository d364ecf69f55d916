# Finds the CUDA toolkit, or else the parts of it that come with PyTorch's packages.
#
# Note [CUDA without a toolkit]: the packages that PyTorch's CUDA build depends on contain what recoup
# needs: the headers and the static runtime (nvidia/cu13), and the compiler's headers that the
# runtime's headers include (in Triton's crt/).

# Makes the target CUDA::cudart_static, and sets CUDAToolkit_FOUND, _VERSION and _INCLUDE_DIRS. If the
# folder of the torch package is empty, only a toolkit is searched for.
macro(recoup_find_cuda torch)
  find_package(CUDAToolkit 12 QUIET)
  if(NOT CUDAToolkit_FOUND AND NOT "${torch}" STREQUAL "")
    recoup_cuda_of_packages("${torch}" cuda_library cuda_headers)
    if(cuda_library)
      add_library(CUDA::cudart_static STATIC IMPORTED)
      find_package(Threads REQUIRED)
      target_link_libraries(CUDA::cudart_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)
      set_target_properties(
        CUDA::cudart_static PROPERTIES IMPORTED_LOCATION ${cuda_library}
                                       INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${cuda_headers}"
                                       INTERFACE_INCLUDE_DIRECTORIES "${cuda_headers}")
      set(CUDAToolkit_FOUND ON)
      set(CUDAToolkit_INCLUDE_DIRS ${cuda_headers})
      recoup_version_of_cuda("${cuda_headers}" CUDAToolkit_VERSION)
    endif()
  endif()
endmacro()

# Sets `library` to the static runtime in the packages installed next to torch, and `headers` to its
# folders, or both to nothing.
function(recoup_cuda_of_packages torch library headers)
  get_filename_component(packages "${torch}" DIRECTORY)
  file(GLOB found ${packages}/nvidia/cu[0-9]*/lib/libcudart_static.a)
  set(${library} "" PARENT_SCOPE)
  if(found)
    list(GET found -1 found)
    get_filename_component(folder ${found} DIRECTORY)
    find_path(RECOUP_CRT_DIR crt/host_defines.h NO_DEFAULT_PATH
              PATHS ${folder}/../include ${packages}/triton/backends/nvidia/include)
    if(RECOUP_CRT_DIR)
      set(${library} ${found} PARENT_SCOPE)
      set(${headers} ${folder}/../include ${RECOUP_CRT_DIR} PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets `result` to the version in cuda.h, such as 13.0.
function(recoup_version_of_cuda headers result)
  list(GET headers 0 folder)
  file(STRINGS ${folder}/cuda.h line REGEX "define CUDA_VERSION " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+" number "${line}")
  math(EXPR major "${number} / 1000")
  math(EXPR minor "${number} % 1000 / 10")
  set(${result} ${major}.${minor} PARENT_SCOPE)
endfunction()

# Tells targets that link this one which methods PyTorch's CUDA allocator has, as they differ between
# versions: RECOUP_CUDA_ALLOCATOR_... is 0 or 1, according to the class in the header.
function(recoup_ask_cuda_allocator target root)
  file(READ ${root}/include/c10/cuda/CUDACachingAllocator.h header)
  foreach(row ANNOTATES=annotateMemory KNOWS_CONTEXTS=getContextForPointer MARKS_CAPTURES=markCaptureBegin
              OBSERVES_REJECTIONS=attachOomRejectionObserver PLACES=allocateWithAddress)
    string(REPLACE "=" ";" row ${row})
    list(GET row 0 macro)
    list(GET row 1 method)
    set(there 0)
    if(header MATCHES "virtual[^;{}]*[ \n]${method}\\(")
      set(there 1)
    endif()
    target_compile_definitions(${target} INTERFACE RECOUP_CUDA_ALLOCATOR_${macro}=${there})
  endforeach()
endfunction()
