#include "hub/json_reader.h"

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "runtime/check.h"

namespace flatshard {

using nlohmann::json;

JsonReader::JsonReader(std::string path, json object, std::string prefix)
    : path_(std::move(path)),
      object_(std::make_shared<const json>(std::move(object))),
      prefix_(std::move(prefix)) {}

bool JsonReader::has(const char* key) const { return object_->contains(key) && !value(key).is_null(); }
bool JsonReader::is_null(const char* key) const { return object_->contains(key) && value(key).is_null(); }
const json& JsonReader::value(const char* key) const { return (*object_)[key]; }

void JsonReader::require(const char* key) const { check(has(key), path_, ": ", prefix_, key, " is missing"); }

int64_t JsonReader::whole(const char* key, uint64_t least) const {
  require(key);
  const json& v = value(key);
  // Numbers in files are unsigned; numbers in default objects are written as int in the code.
  const bool counts = v.is_number_unsigned() || (v.is_number_integer() && v.get<int64_t>() >= 0);
  must(counts && v.get<uint64_t>() >= least && v.get<uint64_t>() <= INT32_MAX, key,
       str("a whole number from ", least, " to ", INT32_MAX));
  return v.get<int64_t>();
}

int64_t JsonReader::size(const char* key) const { return whole(key, 1); }
int64_t JsonReader::size(const char* key, int64_t absent) const { return has(key) ? size(key) : absent; }

double JsonReader::positive(const char* key) const {
  require(key);
  const json& v = value(key);
  must(v.is_number() && v.get<double>() > 0 && v.get<double>() < 1e300, key, "a positive number");
  return v.get<double>();
}

double JsonReader::positive(const char* key, double absent) const {
  return has(key) ? positive(key) : absent;
}

std::vector<double> JsonReader::positives(const char* key, size_t count) const {
  require(key);
  const json& list = value(key);
  std::vector<double> values;
  bool valid = list.is_array() && list.size() == count;
  for (size_t i = 0; valid && i < count; ++i) {
    valid = list[i].is_number() && list[i].get<double>() > 0 && list[i].get<double>() < 1e300;
    if (valid) values.push_back(list[i].get<double>());
  }
  must(valid, key, str("a list of ", count, " positive numbers"));
  return values;
}

bool JsonReader::flag(const char* key, bool absent) const {
  if (!has(key)) return absent;
  must(value(key).is_boolean(), key, "true or false");
  return value(key).get<bool>();
}

std::string JsonReader::text(const char* key, const std::string& absent) const {
  if (!has(key)) return absent;
  must(value(key).is_string(), key, "a string");
  return value(key).get<std::string>();
}

JsonReader JsonReader::object(const char* key) const {
  must(value(key).is_object(), key, "an object");
  return {path_, value(key), prefix_ + key + "."};
}

JsonReader JsonReader::object(const char* key, const json& defaults) const {
  json members = defaults;
  if (has(key)) {
    must(value(key).is_object(), key, "an object");
    for (const auto& [name, member] : value(key).items())
      if (!member.is_null() || !defaults.contains(name)) members[name] = member;
  }
  return {path_, std::move(members), prefix_ + key + "."};
}

void JsonReader::must(bool holds, const char* key, const std::string& wanted) const {
  if (holds) return;
  const std::string got = object_->contains(key) ? json_text(value(key)) : "absent";
  fail(str(path_, ": ", prefix_, key, " is ", got, ", must be ", wanted));
}

}  // namespace flatshard
