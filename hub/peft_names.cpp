#include "hub/peft_names.h"

#include <array>

#include "model/config.h"

namespace flatshard {
namespace {

struct Prefixes {
  const char *in_files, *of_peft;
};

constexpr std::array<Prefixes, 2> kQwen{{{"visual.", "model.visual."}, {"model.", "model.language_model."}}};

}  // namespace

bool has_peft_names(const std::string& family) { return flatshard::family(family).tower.rotary; }

std::string peft_name(const std::string& family, const std::string& name) {
  if (has_peft_names(family))
    for (const auto& [in_files, of_peft] : kQwen)
      if (name.starts_with(in_files)) return of_peft + name.substr(std::string(in_files).size());
  return name;
}

std::string name_in_files(const std::string& family, const std::string& name) {
  if (has_peft_names(family))
    for (const auto& [in_files, of_peft] : kQwen)
      if (name.starts_with(of_peft)) return in_files + name.substr(std::string(of_peft).size());
  return name;
}

std::string last_component(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace flatshard
