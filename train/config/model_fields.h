#pragma once
// The fields of the section [model] (config.h).

#include "train/config/config.h"

namespace flatshard {

std::vector<Field> model_fields(Config& c);

}  // namespace flatshard
