#include "checkpoint/json.h"

#include <cmath>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "runtime/check.h"
#include "runtime/utf8.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kHeaderDepth = 3;  // {"name": {"shape": [
constexpr size_t kDeepest = 32;
constexpr size_t kMostDimensions = 64;  // most dimensions of a tensor, as in PyTorch

// Refuses text that cannot be JSON; `what` begins the error if it is not UTF-8.
void check_text(const char* what, std::string_view text) {
  const size_t valid = valid_utf8_prefix(text), zero = text.find('\0');
  check(zero >= valid, "invalid JSON: a zero byte at ", zero);  // the parser would stop there
  check(valid == text.size(), what, ": not UTF-8 at byte ", valid);
  check(!text.starts_with("\xef\xbb\xbf"), "invalid JSON: begins with a byte order mark");
}

// Refuses duplicate names and excessive depth, which a parsed value no longer shows. This is a separate pass
// because the library's parser callback searches all previous members at the end of each, which takes
// quadratic time.
class Strict : public nlohmann::json_sax<json> {
 public:
  Strict(size_t deepest, size_t most_members, ZeroBytes in_names)
      : deepest_(deepest), most_members_(most_members), in_names_(in_names) {}

  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    check(in_names_ == ZeroBytes::allowed || name.find('\0') == name.npos, "invalid JSON: the name \"",
          name.c_str(), "\" contains a zero byte");
    std::unordered_set<std::string>& names = names_.back();
    check(names.insert(name).second, "invalid JSON: \"", name, "\" appears twice");
    check(names.size() <= most_members_, "invalid JSON: an object has more than ", most_members_, " members");
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    fail(str("invalid JSON: ", error.what()));
  }

 private:
  bool open() {
    check(names_.size() < deepest_, "invalid JSON: nested more than ", deepest_, " levels deep");
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  size_t deepest_, most_members_;
  ZeroBytes in_names_;
  std::vector<std::unordered_set<std::string>> names_;  // names in each open object
};

void check_form(std::string_view text, size_t deepest, size_t most_members, ZeroBytes in_names) {
  Strict strict(deepest, most_members, in_names);
  json::sax_parse(text.begin(), text.end(), &strict);
}

json parse(std::string_view text, size_t deepest) {
  check_form(text, deepest, SIZE_MAX, ZeroBytes::refused);
  return parse_json<json>(text);
}

uint64_t whole_number(const std::string& name, const char* key, const json& value) {
  check(value.is_number_unsigned(), "invalid JSON: \"", name, "\": ", key, " has ", json_text(value),
        ", must be whole numbers from 0 to 2^64 - 1");
  return value.get<uint64_t>();
}

SafetensorsHeader::Tensor tensor_of_json(const std::string& name, const json& value) {
  check(value.is_object() && value.size() == 3 && value.contains("dtype") && value.contains("shape") &&
            value.contains("data_offsets"),
        "invalid JSON: \"", name, "\" must be an object with exactly dtype, shape and data_offsets");
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  check(dtype.is_string(), "invalid JSON: \"", name, "\": dtype is ", json_text(dtype), ", must be a string");
  check(shape.is_array(), "invalid JSON: \"", name, "\": shape must be an array");
  check(shape.size() <= kMostDimensions, "\"", name, "\": the shape has ", shape.size(),
        " dimensions, must have at most ", kMostDimensions);
  check(offsets.is_array() && offsets.size() == 2, "invalid JSON: \"", name,
        "\": data_offsets must be two numbers");
  SafetensorsHeader::Tensor tensor{.name = name, .dtype = dtype, .shape = {}};
  for (const json& extent : shape) tensor.shape.push_back(whole_number(name, "shape", extent));
  for (size_t i = 0; i < 2; ++i) tensor.offsets[i] = whole_number(name, "data_offsets", offsets[i]);
  return tensor;
}

// Reads total_size, which older writers store as a floating-point number.
uint64_t total_size_of(const json& value) {
  constexpr double kMostExact = 1LL << 53;
  if (value.is_number_float()) {
    const double size = value.get<double>();
    if (size >= 0 && size <= kMostExact && size == std::floor(size)) return static_cast<uint64_t>(size);
  }
  return whole_number("metadata", "total_size", value);
}

std::string quoted(const std::string& text) {
  try {
    return json_text(json(text));
  } catch (const json::exception&) {
    fail(str("the name \"", text, "\" is not UTF-8"));
  }
}

}  // namespace

void check_json(std::string_view text, const std::string& path, size_t most_members, ZeroBytes in_names) {
  try {
    check_text("invalid JSON", text);
    check_form(text, kDeepest, most_members, in_names);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what(), error.where);
  }
}

SafetensorsHeader parse_safetensors_header(std::string_view text) {
  check_text("invalid header", text);
  const json parsed = parse(text, kHeaderDepth);
  check(parsed.is_object(), "invalid JSON: must be an object");
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name != kMetadata) {
      header.tensors.push_back(tensor_of_json(name, value));
      continue;
    }
    check(value.is_object(), "invalid JSON: \"", kMetadata, "\" must be an object");
    for (const auto& [key, item] : value.items()) {
      check(item.is_string(), "invalid JSON: \"", kMetadata, "\": \"", key, "\" must be a string");
      header.metadata[key] = item;
    }
  }
  return header;
}

std::string to_json(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto add_name = [&](const std::string& name) {
    text += str(text.back() == '{' ? "" : ",", quoted(name), ':');
  };
  if (!header.metadata.empty()) {
    add_name(kMetadata);
    text += '{';
    for (const auto& [key, value] : header.metadata) {
      add_name(key);
      text += quoted(value);
    }
    text += '}';
  }
  for (const SafetensorsHeader::Tensor& tensor : header.tensors) {
    add_name(tensor.name);
    text += str("{\"dtype\":\"", tensor.dtype, "\",\"shape\":", json_text(json(tensor.shape)),
                ",\"data_offsets\":[", tensor.offsets[0], ',', tensor.offsets[1], "]}");
  }
  return text + '}';
}

SafetensorsIndex parse_safetensors_index(std::string_view text) {
  check_text("invalid JSON", text);
  const json parsed = parse(text, kDeepest);
  check(parsed.is_object() && parsed.contains("weight_map") && parsed["weight_map"].is_object(),
        "invalid JSON: must be an object whose member weight_map is an object");
  SafetensorsIndex index;
  for (const auto& [name, file] : parsed["weight_map"].items()) {
    check(file.is_string(), "invalid JSON: weight_map: \"", name, "\" must be mapped to a file name");
    index.weight_map[name] = file;
  }
  if (!parsed.contains("metadata")) return index;
  const json& metadata = parsed["metadata"];
  check(metadata.is_object(), "invalid JSON: metadata must be an object");
  if (metadata.contains("total_size")) index.total_size = total_size_of(metadata["total_size"]);
  return index;
}

std::string to_json(const SafetensorsIndex& index) {
  json out{{"metadata", json::object()}, {"weight_map", index.weight_map}};
  if (index.total_size) out["metadata"]["total_size"] = *index.total_size;
  return json_text(out, 2) + '\n';
}

}  // namespace flatshard
