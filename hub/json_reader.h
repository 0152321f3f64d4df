#pragma once
// Reads members of a JSON object. Every error names the file and the key. A null member is absent, as in
// transformers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace flatshard {

class JsonReader {
 public:
  JsonReader(std::string path, nlohmann::json object, std::string prefix = "");

  bool has(const char* key) const;
  bool is_null(const char* key) const;
  const nlohmann::json& value(const char* key) const;  // the key must exist
  void require(const char* key) const;

  // The value of a key, or `absent`. Throws an Error if the value has another type or is out of range.
  int64_t whole(const char* key, uint64_t least) const;
  int64_t size(const char* key) const;  // the value must be positive
  int64_t size(const char* key, int64_t absent) const;
  double positive(const char* key) const;
  double positive(const char* key, double absent) const;
  std::vector<double> positives(const char* key, size_t count) const;
  bool flag(const char* key, bool absent) const;
  std::string text(const char* key, const std::string& absent) const;
  JsonReader object(const char* key) const;
  // The object of a key, or an empty one if the key is absent; missing members are taken from `defaults`.
  JsonReader object(const char* key, const nlohmann::json& defaults) const;

  // Throws an Error that the key must be `wanted`, unless `holds`.
  void must(bool holds, const char* key, const std::string& wanted) const;

 private:
  std::string path_;
  std::shared_ptr<const nlohmann::json> object_;
  std::string prefix_;  // path of a nested object, for errors
};

}  // namespace flatshard
