#include "text/input/null_members.h"

#include <algorithm>

#include "runtime/json.h"

namespace flatshard {

void drop_null_members(nlohmann::ordered_json& object) {
  if (!object.is_object()) return;
  auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
  nlohmann::ordered_json::object_t kept;
  for (auto& member : members)
    if (!member.second.is_null()) kept.push_back(std::move(member));
  members = std::move(kept);
}

}  // namespace flatshard
