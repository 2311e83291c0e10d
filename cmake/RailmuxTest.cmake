# SPDX-License-Identifier: MIT
#
# railmux_test(name SOURCES a.c ... [LIBS target ...] [TIMEOUT seconds] [ARGS ...] [SKIPS])
#   A cmocka program <build>/tests/<folder>/<name>, registered with ctest under its name. TIMEOUT (default 60) is for an
#   optimised build; sanitizer builds get RAILMUX_TEST_SLOWDOWN times as much, and the program is told in
#   RAILMUX_TIME_SCALE (tests/time_scale.h). SKIPS: its exit status may say that nothing of it can run here
#   (tests_status() of tests/cmocka_all.h).
function(railmux_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SKIPS" "TIMEOUT" "SOURCES;LIBS;ARGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "railmux_test(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${RAILMUX_TEST_SLOWDOWN}")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} ENVIRONMENT "RAILMUX_TIME_SCALE=${RAILMUX_TEST_SLOWDOWN}")
  if(arg_SKIPS)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()
