# oneDNN as the target OneDnn::OneDnn. Debian's own package config of oneDNN asks for OpenCL's headers, which a CPU
# engine has no use for, so the library and its header are looked for directly. Installed beside isobath-config.cmake.
include(FindPackageHandleStandardArgs)

find_library(ONEDNN_LIBRARY dnnl)
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
mark_as_advanced(ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR)
find_package_handle_standard_args(OneDnn REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR)

if(OneDnn_FOUND AND NOT TARGET OneDnn::OneDnn)
  add_library(OneDnn::OneDnn UNKNOWN IMPORTED)
  set_target_properties(OneDnn::OneDnn PROPERTIES IMPORTED_LOCATION "${ONEDNN_LIBRARY}"
                                                  INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE_DIR}")
endif()
