# One library per folder; its tests are in the same folder.
option(STAGECOACH_UNITY "Compile a library's sources twelve at a time: faster for whole builds, slower for small changes" OFF)
if(STAGECOACH_UNITY)
  # Groups include their sources by absolute paths. With relative ones in __FILE__, programs don't name the folder that
  # built them, and a clone elsewhere reuses the compiler cache.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
endif()

# stagecoach_precompiled(NAME OPTIONS HEADERS...): headers of other projects that most sources include, precompiled when
# sources are compiled in groups: parsing them takes half of a test's time. A source still includes all that it uses,
# because single compilations and the lint stage have no such headers. gcc accepts them only if the options are the same.
function(stagecoach_precompiled name options)
  if(NOT STAGECOACH_UNITY OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gen/${name}.cpp CONTENT "// Only carries precompiled headers.\n")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/gen/${name}.cpp)
  target_link_libraries(${name} PRIVATE spdlog::spdlog fmt::fmt Boost::json)
  target_compile_options(${name} PRIVATE ${options})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

function(stagecoach_use_precompiled target name)
  if(TARGET ${name})
    target_link_libraries(${target} PRIVATE spdlog::spdlog fmt::fmt Boost::json)  # for their definitions
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

if(Catch2_FOUND)
  include(Catch)
else()
  # The tests cannot be built, but their targets exist.
  add_library(Catch2::Catch2WithMain INTERFACE IMPORTED)
endif()

# A test runs for less time than its compiler, so its own sources are hardly optimised. The libraries keep their flags.
if(STAGECOACH_SANITIZE)
  set(STAGECOACH_TEST_OPTIONS -O0)
else()
  set(STAGECOACH_TEST_OPTIONS "$<$<CONFIG:Release>:-O1>")
endif()

set(PRECOMPILED_HEADERS
    <algorithm> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <future> <map>
    <memory> <optional> <set> <span> <string> <string_view> <thread> <vector> <fmt/format.h> <fmt/ranges.h>
    <boost/json.hpp> <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
stagecoach_precompiled(stagecoach_precompiled_library "" ${PRECOMPILED_HEADERS})
if(Catch2_FOUND)
  stagecoach_precompiled(stagecoach_precompiled_test "${STAGECOACH_TEST_OPTIONS}" ${PRECOMPILED_HEADERS}
                         <catch2/catch_test_macros.hpp> <catch2/generators/catch_generators.hpp>
                         <catch2/matchers/catch_matchers_string.hpp>)
  if(TARGET stagecoach_precompiled_test)
    target_link_libraries(stagecoach_precompiled_test PRIVATE Catch2::Catch2WithMain)
  endif()
endif()

# stagecoach_library(NAME [NO_UNITY] [NO_PRECOMPILED] [OPTIMIZED] SOURCES... DEPS...): a static library
# `stagecoach_NAME`, alias stagecoach::NAME. Includes are relative to the repository's root: #include "common/check.h".
# NO_UNITY: its sources define the same names. NO_PRECOMPILED: it has compiler options of its own. OPTIMIZED: its tests
# would take minutes in the debug build with sanitizers, which optimises nothing else.
function(stagecoach_library name)
  cmake_parse_arguments(ARG "NO_UNITY;NO_PRECOMPILED;OPTIMIZED" "" "SOURCES;DEPS" ${ARGN})
  add_library(stagecoach_${name} STATIC ${ARG_SOURCES})
  if(STAGECOACH_UNITY AND NOT ARG_NO_UNITY)
    set_target_properties(stagecoach_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
  add_library(stagecoach::${name} ALIAS stagecoach_${name})
  target_include_directories(stagecoach_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(stagecoach_${name} PUBLIC ${ARG_DEPS})
  if(ARG_OPTIMIZED AND STAGECOACH_SANITIZE)
    target_compile_options(stagecoach_${name} PRIVATE "$<$<CONFIG:Debug>:-O1>")
  elseif(NOT ARG_NO_PRECOMPILED)
    stagecoach_use_precompiled(stagecoach_${name} stagecoach_precompiled_library)
  endif()
endfunction()

# stagecoach_released(NAME): a program of a release, which finds the libraries that deploy/release.sh puts beside it. They
# come before LD_LIBRARY_PATH, whose libraries of the same names may be others. CUDA's libraries have to fit the machine,
# so its builds are not packed in this way.
function(stagecoach_released name)
  if(NOT STAGECOACH_CUDA)
    set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib/stagecoach")
    target_link_options(${name} PRIVATE LINKER:--disable-new-dtags)
  endif()
endfunction()

# stagecoach_bench(NAME SOURCES...): a program that measures or simulates. Under a sanitizer "all" does not contain it.
function(stagecoach_bench name)
  add_executable(${name} ${ARGN})
  if(STAGECOACH_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  stagecoach_use_precompiled(${name} stagecoach_precompiled_library)
endfunction()

# Links Catch2's main(). Without Catch2, "all" does not contain the program.
function(stagecoach_link_catch2 name)
  target_link_libraries(${name} PRIVATE Catch2::Catch2WithMain)
  if(NOT Catch2_FOUND)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# stagecoach_test(NAME SOURCES... DEPS... [LABELS...]): a Catch2 program; each of its cases is a ctest test.
function(stagecoach_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${STAGECOACH_TEST_OPTIONS}>")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  stagecoach_use_precompiled(${name} stagecoach_precompiled_test)
  stagecoach_link_catch2(${name})
  if(NOT Catch2_FOUND)
    return()
  endif()
  # catch_discover_tests drops an empty property value and shifts the remaining arguments. Catch2 ends with 4 if all of
  # its tests were skipped.
  catch_discover_tests(${name} TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 4 LABELS "unit;${ARG_LABELS}")
endfunction()
