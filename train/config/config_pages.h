#pragma once
// The pages of configs/, whose tables say what each key does.

#include <vector>

namespace flatshard {

struct ConfigPage {
  const char* name;  // "configs/DATA.md"
  const char* text;
};
const std::vector<ConfigPage>& config_pages();

}  // namespace flatshard
