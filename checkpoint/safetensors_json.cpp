#include <cmath>

#include "checkpoint/safetensors.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/utf8.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kHeaderDepth = 3;      // {"name": {"shape": [
constexpr size_t kMostDimensions = 64;  // most dimensions of a tensor, as in PyTorch

json parse(std::string_view text, const JsonLimits& limits) {
  check_json(text, limits);
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

SafetensorsHeader parse_safetensors_header(std::string_view text) {
  const size_t valid = valid_utf8_prefix(text);
  check(valid == text.size(), "invalid header: not UTF-8 at byte ", valid);
  const json parsed = parse(text, {.depth = kHeaderDepth, .members = SIZE_MAX});
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
  const json parsed = parse(text, {.members = SIZE_MAX});
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
