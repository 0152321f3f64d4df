#pragma once
// A member of a tokenizer's JSON file with its place there, for reading it strictly: what is missing, of
// another type or unknown is an Error that names file, place and member.

#include <initializer_list>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace flatshard {

class JsonComponent {
 public:
  // An object. `where` begins the errors: "FILE: pre_tokenizer".
  JsonComponent(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  // The member "type", also added to `where`.
  std::string type();
  // Every member must be one of these (or "type").
  void allow(std::initializer_list<const char*> members) const;
  // Whether there is such a member that is not null.
  bool has(const char* member) const;
  const nlohmann::json& value(const char* member) const;
  std::string text(const char* member) const;  // not empty
  bool flag(const char* member, bool fallback) const;
  int64_t count(const char* member, int64_t most) const;  // from 0
  JsonComponent object(const char* member) const;
  std::vector<JsonComponent> list(const char* member, size_t most) const;  // of objects
  // A member that must be missing, null, "" or false.
  void refuse(const char* member) const;
  [[noreturn]] void unsupported(const std::string& what) const;

 private:
  const nlohmann::json& value_;
  std::string where_;
};

}  // namespace flatshard
