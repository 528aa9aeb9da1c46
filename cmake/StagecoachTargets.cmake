# One library per folder; its tests are in the same folder.
option(STAGECOACH_UNITY "Compile a library's sources twelve at a time: faster for whole builds, slower for small changes" OFF)
if(STAGECOACH_UNITY)
  # Groups include their sources by absolute paths. With relative ones in __FILE__, programs don't name the folder that
  # built them, and a clone elsewhere reuses the compiler cache.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
endif()

if(Catch2_FOUND)
  include(Catch)
else()
  # The tests cannot be built, but their targets exist.
  add_library(Catch2::Catch2WithMain INTERFACE IMPORTED)
endif()

# stagecoach_library(NAME [NO_UNITY] SOURCES... DEPS...): a static library `stagecoach_NAME`, alias stagecoach::NAME.
# Includes are relative to the repository's root: #include "common/check.h". NO_UNITY: its sources define the same names.
function(stagecoach_library name)
  cmake_parse_arguments(ARG "NO_UNITY" "" "SOURCES;DEPS" ${ARGN})
  add_library(stagecoach_${name} STATIC ${ARG_SOURCES})
  if(STAGECOACH_UNITY AND NOT ARG_NO_UNITY)
    set_target_properties(stagecoach_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
  add_library(stagecoach::${name} ALIAS stagecoach_${name})
  target_include_directories(stagecoach_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(stagecoach_${name} PUBLIC ${ARG_DEPS})
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

# Links Catch2's main(). Without Catch2, "all" does not contain the program.
function(stagecoach_link_catch2 name)
  target_link_libraries(${name} PRIVATE Catch2::Catch2WithMain)
  if(NOT Catch2_FOUND)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# A test runs for less time than its compiler, so its own sources are hardly optimised. The libraries keep their flags.
if(STAGECOACH_SANITIZE)
  set(STAGECOACH_TEST_OPTIONS -O0)
else()
  set(STAGECOACH_TEST_OPTIONS "$<$<CONFIG:Release>:-O1>")
endif()

# stagecoach_test(NAME SOURCES... DEPS... [LABELS...]): a Catch2 program; each of its cases is a ctest test.
function(stagecoach_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${STAGECOACH_TEST_OPTIONS}>")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  stagecoach_link_catch2(${name})
  if(NOT Catch2_FOUND)
    return()
  endif()
  # catch_discover_tests drops an empty property value and shifts the remaining arguments. Catch2 ends with 4 if all of
  # its tests were skipped.
  catch_discover_tests(${name} TEST_PREFIX "${name}: " DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 4 LABELS "unit;${ARG_LABELS}")
endfunction()
