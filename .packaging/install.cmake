# What "cmake --install" and cpack install; included at the end of CMakeLists.txt.
#
#   bin/flatshard-train            a link to the program. /usr/bin is shared with all other packages, where names such
#                                  as train, generate and evaluate would collide.
#   lib/flatshard/bin/train        the program, for a PATH that contains this folder
#   share/                         man pages, completions, example configs
#   include/flatshard/, lib/       headers and static libraries, with a CMake package for find_package(flatshard)

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# --- programs ---------------------------------------------------------------------------------------------------

set(described ${CMAKE_BINARY_DIR}/generated/described)
file(MAKE_DIRECTORY ${described})
set(DESCRIPTIONS "")
foreach(program ${FLATSHARD_PROGRAMS})
  set(command flatshard-${program})
  add_custom_command(OUTPUT ${described}/${command}.1 ${described}/${command}.bash
    COMMAND ${program} --describe man > ${described}/${command}.1
    COMMAND ${program} --describe bash > ${described}/${command}.bash
    DEPENDS ${program} COMMENT "Describing ${program}")
  list(APPEND DESCRIPTIONS ${described}/${command}.1 ${described}/${command}.bash)
  file(CREATE_LINK ../lib/flatshard/bin/${program} ${described}/${command} SYMBOLIC)
  install(TARGETS ${program} RUNTIME DESTINATION lib/flatshard/bin COMPONENT programs)
  install(FILES ${described}/${command} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  install(FILES ${described}/${command}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
  install(FILES ${described}/${command}.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME ${command} COMPONENT programs)
endforeach()
# The libraries inside pyarrow are no package's, so they are installed beside the programs.
if(ARROW_BUILT AND ARROW_FOLDER)
  install(FILES ${ARROW_LIBRARIES} DESTINATION lib/flatshard/lib COMPONENT programs)
  foreach(text LICENSE NOTICE)
    install(FILES ${ARROW_FOLDER}/${text}.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/flatshard RENAME ${text}.arrow.txt
            COMPONENT programs OPTIONAL)
  endforeach()
  set_property(TARGET ${FLATSHARD_PROGRAMS} PROPERTY INSTALL_RPATH $ORIGIN/../lib)
endif()
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/flatshard USE_SOURCE_PERMISSIONS COMPONENT programs)

# --- libraries --------------------------------------------------------------------------------------------------

set(FLATSHARD_LIBRARIES runtime kernels comm model checkpoint text)
foreach(library ${FLATSHARD_LIBRARIES})
  set_target_properties(flatshard_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS flatshard_${library} EXPORT flatshard ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endforeach()
target_include_directories(flatshard_runtime INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/flatshard>)
target_compile_features(flatshard_runtime INTERFACE $<INSTALL_INTERFACE:cxx_std_20>)
# Headers that need processor flags, CUDA, MPI or nlohmann-json are for the libraries' own sources.
set(PRIVATE_HEADERS "/(simd|simd_math|tile_product|attention_(tile|forward|backward|sm90)|four_bit_decode|four_bit_encode|dynamic_encode|gelu_math|parallel_write|optimizer_range|row_blocks|sink_terms|\
cuda_check|mpi_meeting|json|json_reader|image_parts|null_members)\\.h$")
foreach(folder runtime kernels comm model checkpoint text)
  cmake_path(GET folder PARENT_PATH parent)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flatshard/${parent} COMPONENT development
          FILES_MATCHING PATTERN "*.h" REGEX "${PRIVATE_HEADERS}" EXCLUDE)
endforeach()

set(FIND_DEPENDENCIES "find_dependency(Threads)\n")
if(ONEDNN_BUILT)
  string(APPEND FIND_DEPENDENCIES "find_dependency(OpenMP COMPONENTS CXX)\n")
endif()
if(MPI_BUILT)
  string(APPEND FIND_DEPENDENCIES "find_dependency(MPI COMPONENTS CXX)\n")
endif()
if(ARROW_BUILT AND NOT ARROW_FOLDER)
  string(APPEND FIND_DEPENDENCIES "find_dependency(Arrow)\nfind_dependency(Parquet)\n")
endif()
if(CUDA_BUILT)
  string(APPEND FIND_DEPENDENCIES "find_dependency(CUDAToolkit)\n")
  set_target_properties(flatshard_cudart PROPERTIES EXPORT_NAME cudart)
  install(TARGETS flatshard_cudart EXPORT flatshard)
  if(CUBLAS_BUILT)
    set_target_properties(flatshard_cublaslt PROPERTIES EXPORT_NAME cublaslt)
    install(TARGETS flatshard_cublaslt EXPORT flatshard ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  endif()
endif()
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flatshard)
configure_package_config_file(.packaging/flatshard-config.cmake.in ${CMAKE_BINARY_DIR}/generated/flatshard-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/flatshard-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/flatshard-config.cmake ${CMAKE_BINARY_DIR}/generated/flatshard-config-version.cmake
        DESTINATION ${package_dir} COMPONENT development)
install(EXPORT flatshard NAMESPACE flatshard:: FILE flatshard-targets.cmake DESTINATION ${package_dir} COMPONENT development)

# All that is installed, so that no tests need to be built: cmake --build build --target installable
add_custom_target(installable ALL DEPENDS ${DESCRIPTIONS})
foreach(library ${FLATSHARD_LIBRARIES})
  add_dependencies(installable flatshard_${library})
endforeach()

if(FLATSHARD_WHEEL)
  include(.packaging/wheel/programs.cmake)
endif()

# --- packages ---------------------------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Flatshard maintainers <maintainers@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trainer for sharded transformers")
set(CPACK_PACKAGE_DESCRIPTION "Flatshard trains transformers in C++20 and CUDA, with parameters sharded over the ranks of an MPI job.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME flatshard)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME flatshard-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(development_depends g++ cmake)
foreach(pair "ONEDNN_BUILT libdnnl-dev" "MPI_BUILT libopenmpi-dev" "PCRE2_BUILT libpcre2-dev" "UTF8PROC_BUILT libutf8proc-dev" "ZLIB_BUILT zlib1g-dev"
        "ZSTD_BUILT libzstd-dev" "LIBJPEG_BUILT libjpeg-dev" "LIBPNG_BUILT libpng-dev" "LIBWEBP_BUILT libwebp-dev")
  separate_arguments(pair)
  list(POP_FRONT pair built package)
  if(${built})
    list(APPEND development_depends ${package})
  endif()
endforeach()
if(ARROW_BUILT AND ARROW_FOLDER)
  list(APPEND development_depends "flatshard (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${ARROW_FOLDER})
elseif(ARROW_BUILT)
  list(APPEND development_depends libarrow-dev libparquet-dev)
endif()
list(JOIN development_depends ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
if(MPI_BUILT)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS openmpi-bin)
endif()
# A package is for other machines than this one.
if(FLATSHARD_NATIVE OR FLATSHARD_SANITIZE)
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/.packaging/refuse.cmake)
endif()
include(CPack)
