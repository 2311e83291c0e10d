# SPDX-License-Identifier: MIT
# Language level, warnings, hardening and sanitizers for every target of the tree.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Asserts guard our own invariants: they stay in development builds and go only in Release.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

add_compile_definitions(_GNU_SOURCE)
add_compile_options(
  -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef -Wformat=2 -Wvla
  -fno-strict-aliasing -fno-common)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # With optimisation it cannot see that outputs are written on success and read only then. Sanitizers and clang still look.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # A variable that only an assert reads is unused when asserts are gone.
  add_compile_options(-Wno-unused-variable -Wno-unused-but-set-variable)
endif()
# as-needed: a program names only the libraries it calls into, although static libraries pull their own along.
add_link_options(-Wl,--as-needed -Wl,-z,relro,-z,now)

if(RAILMUX_SANITIZE)
  # In CMAKE_C_FLAGS, which compiles and links, and where a folder can see it.
  string(APPEND CMAKE_C_FLAGS " -fsanitize=${RAILMUX_SANITIZE} -fno-omit-frame-pointer")
  if(RAILMUX_SANITIZE MATCHES "undefined")
    # A report has to fail the test.
    string(APPEND CMAKE_C_FLAGS " -fno-sanitize-recover=undefined")
  endif()
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Instrumented code hides from gcc what it knows of ranges; the plain builds still warn.
    add_compile_options(-Wno-format-truncation)
  endif()
else()
  add_compile_options(-fstack-protector-strong)
  if(CMAKE_BUILD_TYPE MATCHES "Rel")
    add_compile_definitions(_FORTIFY_SOURCE=2)
  endif()
endif()
