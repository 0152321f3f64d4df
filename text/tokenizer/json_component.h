#pragma once
// A member of a tokenizer's JSON file with its path in the file, for strict reading: a missing or unknown
// member, or one of another type, is an Error that names file, path and member.

#include <initializer_list>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace flatshard {

class JsonComponent {
 public:
  // `value` must be an object. `where` begins the Errors: "FILE: pre_tokenizer".
  JsonComponent(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  // Returns the member "type", and adds it to `where`.
  std::string type();
  // Throws an Error if a member is not one of these (or "type").
  void allow(std::initializer_list<const char*> members) const;
  // Whether a member with this name exists and is not null.
  bool has(const char* member) const;
  const nlohmann::json& value(const char* member) const;
  std::string text(const char* member) const;  // the text must not be empty
  bool flag(const char* member, bool fallback) const;
  int64_t count(const char* member, int64_t most) const;  // the value must be 0 to `most`
  JsonComponent object(const char* member) const;
  std::vector<JsonComponent> list(const char* member, size_t most) const;  // all elements must be objects
  // Throws an Error unless the member is missing, null, "" or false.
  void refuse(const char* member) const;
  [[noreturn]] void unsupported(const std::string& what) const;

 private:
  const nlohmann::json& value_;
  std::string where_;
};

}  // namespace flatshard
