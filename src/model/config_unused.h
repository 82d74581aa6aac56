// Settings that were given and can have no effect beside the others. A model folder or a run of an earlier version may
// hold some and is read all the same; who asks for a new run is told.
#pragma once

#include "model/config.h"

namespace isobath {

// Of a config as it was given, before resolve. A value that is a default is no setting, and of topology = dense, or
// without experts, what is said of them is what the routed variant of the same file means. Throws Error naming the key,
// why it has no effect, and the way out.
void check_unused(const ModelConfig& config);

}  // namespace isobath
