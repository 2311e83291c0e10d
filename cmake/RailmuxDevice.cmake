# SPDX-License-Identifier: MIT
#
# Plug-ins with device code. The project itself is C only; device sources (.hip) go through custom commands, so that no
# machine needs a GPU toolchain to build the rest.
#
#   RAILMUX_CUDA, RAILMUX_HIP   AUTO (on where the compiler is found), ON (an error where it is not), OFF
#   RAILMUX_DEVICE              afterwards: true if there is any of the two
#
# railmux_device_library(name EXPORT symbol [SOURCES a.c ...] [HIP_SOURCES a.hip ...] [LIBS target ...])
#   lib<name>.so: a module that exports one symbol and is loaded with dlopen. C sources are compiled by the project's C
#   compiler, with RAILMUX_CUDA=1 or RAILMUX_HIP=1 and the runtime's headers. The symbol needs default visibility.
# railmux_device_program(name [SOURCES ...] [HIP_SOURCES ...] [LIBS ...])
#   The same as a program.
#
# NVIDIA's variant has the plain name where there is nvcc, since it is what can be run here; then AMD's is target
# <name>-amd in <build>/amd/. Without nvcc AMD's has the plain name. Where AMD's runtime library is missing, its variant
# is compiled (one fat object for all architectures) and not linked.
#
# Device code is always optimised: without it kernels need stacks, and nothing that is checked here would hold. Each source
# is compiled once: what the compilers made on the way (AMD's assembler, NVIDIA's cubin, PTX and ptxas's report) stays in
# <folder of the target>/<target>.dir/<path of the source>/ beside the object, and is what tests/device looks at.
#
#   RAILMUX_DEVICE_CODE   OFF: only the C sources of what has device code are compiled, and nothing of it is linked
set(RAILMUX_CUDA AUTO CACHE STRING "plug-ins for NVIDIA GPUs: AUTO, ON, OFF")
set(RAILMUX_HIP AUTO CACHE STRING "plug-ins for AMD GPUs: AUTO, ON, OFF")
set(RAILMUX_CUDA_ARCHITECTURES "90" CACHE STRING "NVIDIA architectures, as numbers")
set(RAILMUX_HIP_ARCHITECTURES "gfx90a;gfx942" CACHE STRING "AMD architectures")
set_property(CACHE RAILMUX_CUDA RAILMUX_HIP PROPERTY STRINGS AUTO ON OFF)
option(RAILMUX_DEVICE_CODE "compile device code, not only the C sources that go with it" ON)

set(RAILMUX_PLUGIN_DIR ${CMAKE_INSTALL_LIBDIR}/railmux) # where plug-ins are installed
set(railmux_device_flags -O3 -std=c++17 -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_BINARY_DIR})
set(railmux_device_warnings -Wall -Wextra -Werror -Wno-unused-function)
set(railmux_device_host_flags -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-strict-aliasing -fstack-protector-strong)

# ---- what there is ---------------------------------------------------------------------------------------------------
function(_railmux_find_cuda)
  find_program(RAILMUX_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin DOC "NVIDIA's compiler")
  if(NOT RAILMUX_NVCC AND EXISTS "$ENV{CUDACXX}")
    set_property(CACHE RAILMUX_NVCC PROPERTY VALUE $ENV{CUDACXX})
  endif()
  # It wants a C++ compiler for the host part, even of a project that has no other C++.
  find_program(RAILMUX_NVCC_HOST NAMES g++ g++-12 clang++ DOC "host compiler of nvcc")
  if(NOT RAILMUX_NVCC OR NOT RAILMUX_NVCC_HOST)
    return()
  endif()
  get_filename_component(bin ${RAILMUX_NVCC} DIRECTORY)
  get_filename_component(home ${bin} DIRECTORY)
  find_path(RAILMUX_CUDA_INCLUDE cuda_runtime_api.h HINTS ${home}/include ${home}/targets/x86_64-linux/include)
  find_library(RAILMUX_CUDA_RUNTIME cudart_static HINTS ${home}/lib64 ${home}/lib ${home}/targets/x86_64-linux/lib)
endfunction()

# Debian's hipcc 5.2 knows no gfx942, hence the trial. Device code includes no header of HIP and calls no function of its
# device library, so plain clang does as well as ROCm's.
function(_railmux_find_hip)
  if(NOT RAILMUX_HIPCXX)
    set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/probe.hip)
    file(WRITE ${probe} "__attribute__((device)) int probe;\n")
    list(TRANSFORM RAILMUX_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
    foreach(name amdclang++ clang++ clang++-21 clang++-20 clang++-19 clang++-18)
      find_program(candidate ${name} HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES bin llvm/bin NO_CACHE)
      if(candidate)
        execute_process(COMMAND ${candidate} -x hip ${architectures} -nogpuinc -nogpulib -O1 -fPIC -c ${probe} -o ${probe}.o
                        RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE words)
        if(result EQUAL 0)
          set(RAILMUX_HIPCXX ${candidate} CACHE FILEPATH "compiler for AMD's GPUs")
          break()
        endif()
        # Mostly it knows too few architectures, or its linker or clang-offload-bundler is missing.
        string(REGEX MATCH "[^\n]*error[^\n]*" words "${words}")
        message(STATUS "${candidate} does not compile for ${RAILMUX_HIP_ARCHITECTURES}: ${words}")
      endif()
      unset(candidate)
    endforeach()
  endif()
  find_path(RAILMUX_HIP_INCLUDE hip/hip_runtime_api.h HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES include)
  find_library(RAILMUX_HIP_RUNTIME amdhip64 HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES lib)
endfunction()

if(RAILMUX_SANITIZE)
  # The runtimes are not instrumented, and device code cannot be.
  set(RAILMUX_CUDA OFF)
  set(RAILMUX_HIP OFF)
endif()
if(RAILMUX_CUDA)
  _railmux_find_cuda()
  if(NOT RAILMUX_NVCC OR NOT RAILMUX_NVCC_HOST OR NOT RAILMUX_CUDA_INCLUDE OR NOT RAILMUX_CUDA_RUNTIME)
    if(NOT RAILMUX_CUDA STREQUAL "AUTO")
      message(FATAL_ERROR "RAILMUX_CUDA: needs nvcc, its headers, libcudart_static.a and a C++ compiler")
    endif()
    set(RAILMUX_CUDA OFF)
  else()
    set(RAILMUX_CUDA ON)
  endif()
endif()
if(RAILMUX_HIP)
  _railmux_find_hip()
  if(NOT RAILMUX_HIPCXX OR NOT RAILMUX_HIP_INCLUDE)
    if(NOT RAILMUX_HIP STREQUAL "AUTO")
      message(FATAL_ERROR "RAILMUX_HIP: needs a clang for ${RAILMUX_HIP_ARCHITECTURES} and hip/hip_runtime_api.h; "
                          "scripts/deps --gpu installs both")
    endif()
    set(RAILMUX_HIP OFF)
  else()
    set(RAILMUX_HIP ON)
  endif()
endif()
if(RAILMUX_CUDA OR RAILMUX_HIP)
  set(RAILMUX_DEVICE ON)
else()
  set(RAILMUX_DEVICE OFF)
endif()
message(STATUS "device code: NVIDIA ${RAILMUX_CUDA}, AMD ${RAILMUX_HIP}, compiled ${RAILMUX_DEVICE_CODE}")

# ---- compiling -------------------------------------------------------------------------------------------------------
function(_railmux_nvcc target source folder)
  set(flags ${railmux_device_flags} -x cu -DRAILMUX_CUDA=1 -ccbin ${RAILMUX_NVCC_HOST} -Werror all-warnings)
  foreach(architecture ${RAILMUX_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  # Functions that this file does not use, and loops over no rank at all, as templates have them.
  list(APPEND flags --diag-suppress=177,186)
  list(JOIN railmux_device_host_flags "," host)
  list(JOIN railmux_device_warnings "," warnings)
  add_custom_command(
    OUTPUT ${folder}/object.o
    COMMAND ${CMAKE_SOURCE_DIR}/cmake/keep-report ${folder}/report.txt
            ${RAILMUX_NVCC} ${flags} -Xcompiler=${host},${warnings} -keep -keep-dir ${folder} -Xptxas -v
            -MD -MF ${folder}/object.o.d -MT ${folder}/object.o -c ${source} -o ${folder}/object.o
    DEPENDS ${source}
    DEPFILE ${folder}/object.o.d
    COMMENT "nvcc: ${target}: ${source}"
    VERBATIM)
endfunction()

function(_railmux_hipcc target source folder)
  list(TRANSFORM RAILMUX_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
  add_custom_command(
    OUTPUT ${folder}/object.o
    COMMAND ${RAILMUX_HIPCXX} -x hip ${architectures} -nogpuinc -nogpulib ${railmux_device_flags} ${railmux_device_host_flags}
            ${railmux_device_warnings} -D__HIP_PLATFORM_AMD__=1 -DRAILMUX_HIP=1 -isystem ${RAILMUX_HIP_INCLUDE} --save-temps=obj
            -MD -MF ${folder}/object.o.d -MT ${folder}/object.o -c ${source} -o ${folder}/object.o
    DEPENDS ${source}
    DEPFILE ${folder}/object.o.d
    COMMENT "hip: ${target}: ${source}"
    VERBATIM)
endfunction()

# One variant (cuda or hip) of a module or program.
function(_railmux_device_target target name kind variant)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "EXPORT" "SOURCES;HIP_SOURCES;LIBS")
  set(objects)
  set(owners)
  set(builder ${target}) # what is built when they are
  if(variant STREQUAL "hip" AND NOT RAILMUX_HIP_RUNTIME)
    set(builder ${target}-objects)
  endif()
  if(RAILMUX_DEVICE_CODE)
    foreach(source ${arg_HIP_SOURCES})
      get_filename_component(path ${source} ABSOLUTE)
      file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR} ${path})
      string(REPLACE "/" "_" flat ${relative})
      # What another target compiles already is taken from there: nothing depends on the target.
      get_property(folder GLOBAL PROPERTY RAILMUX_DEVICE_FOLDER_${variant}_${flat})
      if(folder)
        get_property(owner GLOBAL PROPERTY RAILMUX_DEVICE_OWNER_${variant}_${flat})
        list(APPEND owners ${owner})
      else()
        set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}.dir/${flat})
        file(MAKE_DIRECTORY ${folder})
        if(variant STREQUAL "cuda")
          _railmux_nvcc(${target} ${path} ${folder})
        else()
          _railmux_hipcc(${target} ${path} ${folder})
        endif()
        set_property(GLOBAL PROPERTY RAILMUX_DEVICE_FOLDER_${variant}_${flat} ${folder})
        set_property(GLOBAL PROPERTY RAILMUX_DEVICE_OWNER_${variant}_${flat} ${builder})
        set_property(GLOBAL APPEND PROPERTY RAILMUX_DEVICE_OBJECTS "${relative}\t${variant}\t${folder}")
      endif()
      list(APPEND objects ${folder}/object.o)
    endforeach()
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  endif()

  if((variant STREQUAL "hip" AND NOT RAILMUX_HIP_RUNTIME) OR (arg_HIP_SOURCES AND NOT RAILMUX_DEVICE_CODE))
    if(objects)
      add_custom_target(${target}-objects ALL DEPENDS ${objects})
      if(owners)
        add_dependencies(${target}-objects ${owners})
      endif()
    endif()
    if(NOT arg_SOURCES)
      return()
    endif()
    add_library(${target} OBJECT ${arg_SOURCES})
  elseif(kind STREQUAL "PROGRAM")
    add_executable(${target} ${arg_SOURCES} ${objects})
  else()
    set(map ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
    file(CONFIGURE OUTPUT ${map} CONTENT "{\n        global:\n                ${arg_EXPORT};\n        local:\n                *;\n};\n")
    add_library(${target} MODULE ${arg_SOURCES} ${objects})
    target_link_options(${target} PRIVATE -Wl,--version-script=${map} -Wl,--exclude-libs,ALL -Wl,-z,defs)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
  endif()
  if(owners)
    add_dependencies(${target} ${owners})
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME ${name})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} Threads::Threads)
  if(NOT target STREQUAL name)
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/amd RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/amd)
  endif()
  if(variant STREQUAL "cuda")
    target_compile_definitions(${target} PRIVATE RAILMUX_CUDA=1)
    target_include_directories(${target} SYSTEM PRIVATE ${RAILMUX_CUDA_INCLUDE})
    # Static: it finds the driver itself when first used, so the module loads on every host.
    target_link_libraries(${target} PRIVATE ${RAILMUX_CUDA_RUNTIME} ${CMAKE_DL_LIBS} rt)
  else()
    target_compile_definitions(${target} PRIVATE RAILMUX_HIP=1 __HIP_PLATFORM_AMD__=1)
    target_include_directories(${target} SYSTEM PRIVATE ${RAILMUX_HIP_INCLUDE})
    if(RAILMUX_HIP_RUNTIME)
      target_link_libraries(${target} PRIVATE ${RAILMUX_HIP_RUNTIME})
    endif()
  endif()
endfunction()

function(_railmux_device name kind)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "EXPORT" "SOURCES;HIP_SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  set(rest ${ARGN})
  if(RAILMUX_CUDA)
    _railmux_device_target(${name} ${name} ${kind} cuda ${rest})
    if(RAILMUX_HIP)
      _railmux_device_target(${name}-amd ${name} ${kind} hip ${rest})
    endif()
  elseif(RAILMUX_HIP)
    _railmux_device_target(${name} ${name} ${kind} hip ${rest})
  endif()
endfunction()

function(railmux_device_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXPORT" "SOURCES;HIP_SOURCES;LIBS")
  if(NOT arg_EXPORT)
    message(FATAL_ERROR "railmux_device_library(${name}): which symbol does it EXPORT?")
  endif()
  _railmux_device(${name} LIBRARY ${ARGN})
  if(TARGET ${name})
    get_target_property(type ${name} TYPE)
    if(type STREQUAL "MODULE_LIBRARY")
      install(TARGETS ${name} LIBRARY DESTINATION ${RAILMUX_PLUGIN_DIR})
      set_property(GLOBAL APPEND PROPERTY RAILMUX_PLUGINS "${name}=${arg_EXPORT}")
    endif()
  endif()
endfunction()

function(railmux_device_program name)
  _railmux_device(${name} PROGRAM ${ARGN})
endfunction()
