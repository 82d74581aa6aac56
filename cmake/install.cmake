# cmake --install: the library, its headers under include/isobath/<room>/, the program, and the package config that
# lets find_package(isobath) find them wherever the prefix was moved to.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/isobath)

install(TARGETS isobath EXPORT isobath-targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/isobath)
install(EXPORT isobath-targets NAMESPACE isobath:: DESTINATION ${package_dir})
if(TARGET isobath_program)
  install(TARGETS isobath_program)
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/isobath-config.cmake.in
                              ${PROJECT_BINARY_DIR}/isobath-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/isobath-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isobath-config.cmake ${PROJECT_BINARY_DIR}/isobath-config-version.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindOneDnn.cmake DESTINATION ${package_dir})
