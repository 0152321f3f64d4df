#pragma once
// Reads members of a JSON object. Every error names the file and the key. null means absent, as it does to
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
  const nlohmann::json& value(const char* key) const;  // of a key that is there
  void require(const char* key) const;

  // The value of a key, or `absent`. An Error if it has another type or is out of range.
  int64_t whole(const char* key, uint64_t least) const;
  int64_t size(const char* key) const;  // positive
  int64_t size(const char* key, int64_t absent) const;
  double positive(const char* key) const;
  double positive(const char* key, double absent) const;
  std::vector<double> positives(const char* key, size_t count) const;
  bool flag(const char* key, bool absent) const;
  std::string text(const char* key, const std::string& absent) const;
  JsonReader object(const char* key) const;
  // The object, or one without members if the key is absent, with the members that it lacks from `defaults`.
  JsonReader object(const char* key, const nlohmann::json& defaults) const;

  // An Error that the key must be `wanted`, unless `holds`.
  void must(bool holds, const char* key, const std::string& wanted) const;

 private:
  std::string path_;
  std::shared_ptr<const nlohmann::json> object_;
  std::string prefix_;  // of nested objects, for errors
};

}  // namespace flatshard
