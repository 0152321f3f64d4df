#include "text/tokenizer/json_component.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "runtime/check.h"

namespace flatshard {

using nlohmann::json;

JsonComponent::JsonComponent(const json& value, std::string where) : value_(value), where_(std::move(where)) {
  check(value.is_object(), where_, ": is ", value.type_name(), ", must be an object");
}

std::string JsonComponent::type() {
  const std::string type = text("type");
  where_ += ' ' + type;
  return type;
}

void JsonComponent::allow(std::initializer_list<const char*> members) const {
  for (const auto& [name, value] : value_.items())
    check(name == "type" ||
              std::any_of(members.begin(), members.end(), [&](const char* m) { return name == m; }),
          where_, ": the member \"", name, "\" is not supported");
}

bool JsonComponent::has(const char* member) const {
  const auto found = value_.find(member);
  return found != value_.end() && !found->is_null();
}

const json& JsonComponent::value(const char* member) const {
  const auto found = value_.find(member);
  check(found != value_.end(), where_, ": the member \"", member, "\" is missing");
  return *found;
}

std::string JsonComponent::text(const char* member) const {
  const json& found = value(member);
  check(found.is_string() && !found.get_ref<const std::string&>().empty(), where_, ": \"", member, "\" is ",
        found.is_string() ? "empty" : found.type_name(), ", must be text");
  return found.get<std::string>();
}

bool JsonComponent::flag(const char* member, bool fallback) const {
  if (!has(member)) return fallback;
  const json& found = value(member);
  check(found.is_boolean(), where_, ": \"", member, "\" is ", found.type_name(), ", must be true or false");
  return found.get<bool>();
}

int64_t JsonComponent::count(const char* member, int64_t most) const {
  const json& found = value(member);
  check(found.is_number_unsigned() && found.get<uint64_t>() <= static_cast<uint64_t>(most), where_, ": \"",
        member, "\" is ", found.is_primitive() ? ascii_json_text(found) : found.type_name(),
        ", must be a whole number from 0 to ", most);
  return found.get<int64_t>();
}

JsonComponent JsonComponent::object(const char* member) const {
  return {value(member), where_ + ": " + member};
}

std::vector<JsonComponent> JsonComponent::list(const char* member, size_t most) const {
  const json& found = value(member);
  check(found.is_array(), where_, ": \"", member, "\" is ", found.type_name(), ", must be an array");
  check(found.size() <= most, where_, ": \"", member, "\" has ", found.size(),
        " elements, must have at most ", most);
  std::vector<JsonComponent> all;
  for (size_t i = 0; i < found.size(); ++i)
    all.emplace_back(found[i], str(where_, ": ", member, '[', i, ']'));
  return all;
}

void JsonComponent::refuse(const char* member) const {
  if (!has(member)) return;
  const json& found = value(member);
  check(found == "" || found == false || found == 0, where_, ": \"", member, "\" is ", ascii_json_text(found),
        ", which is not supported: only null is");
}

void JsonComponent::unsupported(const std::string& what) const {
  fail(where_ + ": " + what + " is not supported");
}

}  // namespace flatshard
