# Compiler, linker and sanitizer settings of all targets.
set(STAGECOACH_SANITIZE "" CACHE STRING "Sanitizers to build with, as in -fsanitize= (empty: none)")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths are relative to the clone, so that another clone or build folder can reuse the cache. The sloppiness is
  # what ccache asks for with precompiled headers.
  set(CCACHE_COMMAND ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                     CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_COMMAND})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_COMMAND})
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# nvcc accepts only its own options.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wno-missing-field-initializers;-Werror=return-type>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 sees overlapping copies in "text" + std::string: gcc.gnu.org/PR105651.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
  # With optimisation and precompiled headers it also sees moved strings read and written out of their bounds.
  add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Members and functions with the annotations of common/mutex.h are used under their locks.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>")
  # libstdc++ 12's own std::stable_sort calls a function that it declares deprecated.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>")
endif()

# A newer compiler warns of more: with one that is not tested here, a warning never breaks a build.
option(STAGECOACH_WERROR "Warnings are errors with gcc up to 13 and clang up to 19 (our presets)" OFF)
if(STAGECOACH_WERROR AND
   ((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14) OR
    (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 20)))
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>")
endif()

if(STAGECOACH_SANITIZE)
  add_compile_options(-fsanitize=${STAGECOACH_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${STAGECOACH_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code hides from gcc what is initialized, also in Boost's and the standard library's headers.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND STAGECOACH_SANITIZE MATCHES "thread")
    # Boost.Asio has fences, which gcc's thread sanitizer does not follow. Our own code has none.
    add_compile_options(-Wno-tsan)
  endif()
  if(STAGECOACH_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(STAGECOACH_SANITIZE MATCHES "thread")
    # The compiler runs longer than the tests do.
    string(REPLACE "-O2" "-O1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  endif()
endif()

option(STAGECOACH_FUZZ "Build tests/fuzz, and everything with the coverage that it follows (clang)" OFF)
if(STAGECOACH_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

# What hiredis and gRPC ask for. All sources get it, because precompiled headers need the same definitions everywhere.
add_compile_definitions(_FILE_OFFSET_BITS=64)
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-pthread>")
