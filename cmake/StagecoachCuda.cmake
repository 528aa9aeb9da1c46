# CUDA: compiler, libraries, architectures. STAGECOACH_CUDA (the preset `cuda`) enables it.
option(STAGECOACH_CUDA "Build the workers' kernels for NVIDIA GPUs" OFF)
set(STAGECOACH_CUDA_HEAD_DIMS "64;80;96;128;256" CACHE STRING
    "Head sizes with attention on the tensor cores; others are slow")
set(STAGECOACH_CUDA_SOFTCAPS "false;true" CACHE STRING
    "Hopper's prefill attention: without and with a soft cap of the scores (Gemma 2); others are slower")
if(NOT STAGECOACH_CUDA)
  return()
endif()

# Uses the toolkit of deploy/cuda-toolkit.sh if it exists, else the machine's own toolkit.
set(STAGECOACH_CUDA_TOOLKIT "${CMAKE_SOURCE_DIR}/build/cuda-toolkit" CACHE PATH "Folder that deploy/cuda-toolkit.sh filled")
set(STAGECOACH_CUDA_ARCHITECTURES "80-real;89-real;90a-real;90-virtual" CACHE STRING
    "GPUs to build for, as CMAKE_CUDA_ARCHITECTURES; the last one, virtual, is for later GPUs")

if(EXISTS "${STAGECOACH_CUDA_TOOLKIT}/cuda/bin/nvcc")
  set(CMAKE_CUDA_COMPILER "${STAGECOACH_CUDA_TOOLKIT}/cuda/bin/nvcc" CACHE FILEPATH "")
  set(CUDAToolkit_ROOT "${STAGECOACH_CUDA_TOOLKIT}/cuda" CACHE PATH "")
endif()
set(CMAKE_CUDA_ARCHITECTURES "${STAGECOACH_CUDA_ARCHITECTURES}")
# CMake before 3.25.2 does not know this nvcc's option for C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 12.8 REQUIRED)
