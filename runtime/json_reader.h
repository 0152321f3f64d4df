#pragma once
// Reads the members of a JSON object in a file as typed values. An Error names the file and the path of keys
// to the value, the value, and what it must be:
//   config.json: rope_scaling.factor is -1, must be a positive number
// A null member is absent, as in transformers: a reader that gives a default takes it, any other refuses
// null.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace flatshard {

template <class Json>
class BasicJsonReader {
 public:
  // Throws an Error unless `value` is an object. `keys` lead to it in the file: "quantization_config".
  BasicJsonReader(const std::string& file, Json value, const std::string& keys = "");

  // The place of the object, or of a member, for errors: "config.json: rope_scaling",
  // "config.json: rope_scaling.factor".
  std::string where() const;
  std::string where(const std::string& key) const { return place_ + key; }
  // Adds a word to the place of the object, such as its type: "tokenizer.json: model BPE", and for a member
  // "tokenizer.json: model BPE: vocab".
  void label(const std::string& word);

  const Json& members() const { return *object_; }
  bool has(const std::string& key) const;
  bool is_null(const std::string& key) const;
  // The member, which may be null. Throws an Error if it is missing, as do the functions below without a
  // default.
  const Json& value(const std::string& key) const;
  void require(const std::string& key) const;  // refuses null, too
  // Throws an Error that the member must be `wanted`, unless `holds`.
  void must(bool holds, const std::string& key, const std::string& wanted) const;

  int64_t whole(const std::string& key, int64_t least, int64_t most) const;
  int64_t size(const std::string& key) const { return whole(key, 1, INT32_MAX); }
  int64_t size(const std::string& key, int64_t absent) const { return has(key) ? size(key) : absent; }
  double number(const std::string& key) const;
  double positive(const std::string& key) const;
  double positive(const std::string& key, double absent) const { return has(key) ? positive(key) : absent; }
  std::vector<double> positives(const std::string& key, size_t count) const;
  bool flag(const std::string& key, bool absent) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& absent) const;
  // A list of strings; empty if the member is absent. `wanted` describes it in errors.
  std::vector<std::string> texts(const std::string& key, const char* wanted = "a list of strings") const;
  BasicJsonReader object(const std::string& key) const;
  // The object of a key, or an empty one if the key is absent; missing members are taken from `defaults`.
  BasicJsonReader object(const std::string& key, const Json& defaults) const;
  // A list of at most `most` objects.
  std::vector<BasicJsonReader> objects(const std::string& key, size_t most) const;

  // The name of the first member that is neither known nor read.
  std::optional<std::string> unknown_member(std::initializer_list<const char*> known = {}) const;

 private:
  BasicJsonReader(std::shared_ptr<const Json> object, std::string place)
      : object_(std::move(object)), place_(std::move(place)) {}
  const Json* find(const std::string& key) const;
  BasicJsonReader part(const Json& value, const std::string& key) const;

  std::shared_ptr<const Json> object_;  // or a part of a value that it keeps alive
  std::string place_;                   // what precedes a member's key in its place: "config.json: "
  mutable std::vector<const Json*> read_;
};

using JsonReader = BasicJsonReader<nlohmann::json>;
using OrderedJsonReader = BasicJsonReader<nlohmann::ordered_json>;

}  // namespace flatshard
