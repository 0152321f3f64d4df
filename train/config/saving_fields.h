#pragma once
// The fields of the sections [checkpoint] and [log] (config.h).

#include "train/config/config.h"

namespace flatshard {

std::vector<Field> saving_fields(Config& c);

}  // namespace flatshard
