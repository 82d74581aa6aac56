// Which build this is.
#pragma once

namespace isobath {

// The version, and where it was configured in a git checkout the commit that stood there: "0.1.0+8f24a14", "-dirty"
// with changes of its own. In one small file that CMake writes, so that a new commit compiles nothing else.
const char* build_version();

}  // namespace isobath
