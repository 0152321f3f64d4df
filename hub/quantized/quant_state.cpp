#include "hub/quantized/quant_state.h"

#include <cmath>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "text/jinja/jinja_print.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr std::pair<DType, const char*> kTorchNames[] = {
    {DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}, {DType::u8, "uint8"}};
constexpr const char* kNestedKeys[] = {"nested_blocksize", "nested_dtype", "nested_offset"};

// A float dtype by its name in PyTorch.
DType float_dtype(const JsonReader& in, const char* key) {
  const json& text = in.value(key);
  const std::optional<DType> found =
      text.is_string() ? dtype_of_torch_name(text.get<std::string>()) : std::nullopt;
  in.must(found && is_float(*found), key, "float32, bfloat16 or float16");
  return *found;
}

void check_keys(const JsonReader& in) {
  if (const auto unknown = in.unknown_member(
          {"quant_type", "blocksize", "dtype", "shape", "nested_blocksize", "nested_dtype", "nested_offset"}))
    fail(str(in.where(), ": \"", *unknown, "\" is not a member of this format"));
  for (const char* key : kNestedKeys)
    check(in.has(key) == in.has(kNestedKeys[0]), in.where(key), in.has(key) ? " is present" : " is missing",
          ", but a weight has all of nested_blocksize, nested_dtype and nested_offset or none");
}

void read_nested(const JsonReader& in, QuantState& state) {
  state.weight.format.nested = true;
  in.must(in.value("nested_blocksize") == kNestedBlock, "nested_blocksize", str(kNestedBlock));
  in.must(in.value("nested_dtype") == "float32", "nested_dtype", "float32");
  const json& offset = in.value("nested_offset");
  state.nested_offset = offset.is_number() ? static_cast<float>(offset.get<double>()) : NAN;
  in.must(std::isfinite(state.nested_offset), "nested_offset", "a number within the range of float32");
}

}  // namespace

const char* torch_name_of(DType dtype) {
  for (const auto& [known, name] : kTorchNames)
    if (known == dtype) return name;
  fail(str("dtype is ", dtype, ", must be f32, bf16, f16 or u8"));
}

std::optional<DType> dtype_of_torch_name(std::string_view text) {
  for (const auto& [dtype, name] : kTorchNames)
    if (text == name) return dtype;
  return {};
}

std::string quant_state_json(const QuantState& state) {
  const FourBitWeight& w = state.weight;
  std::string text =
      str("{\"quant_type\": \"", name_of(w.format.kind), "\", \"blocksize\": ", w.format.block,
          ", \"dtype\": \"", torch_name_of(state.dtype), "\", \"shape\": [", w.out, ", ", w.in, ']');
  if (w.format.nested)
    text += str(", \"nested_blocksize\": ", kNestedBlock, ", \"nested_dtype\": \"float32\", ",
                "\"nested_offset\": ", python_float(static_cast<double>(state.nested_offset)));
  return text + '}';
}

QuantState parse_quant_state(std::string_view text, const std::string& name) {
  const JsonReader in(name, checked_json<json>(text, name));
  check_keys(in);
  QuantState state;
  FourBitFormat& format = state.weight.format;
  const json& kind = in.value("quant_type");
  const auto known = kind.is_string() ? named<FourBitKind>(kind.get<std::string>()) : std::nullopt;
  in.must(known.has_value(), "quant_type", "nf4 or fp4");
  format.kind = *known;
  const std::string blocks = str("a power of two from ", kSmallestFourBitBlock, " to ", kLargestFourBitBlock);
  const json& block = in.value("blocksize");
  in.must(block.is_number_unsigned() && block.get<uint64_t>() <= kLargestFourBitBlock &&
              is_four_bit_block(block.get<int64_t>()),
          "blocksize", blocks);
  format.block = block.get<int64_t>();
  state.dtype = float_dtype(in, "dtype");
  const json& shape = in.value("shape");
  constexpr const char* kShape = "two positive numbers below 2^31, the rows and columns of the weight";
  const auto is_extent = [](const json& extent) {
    return extent.is_number_unsigned() && extent > 0 && extent <= INT32_MAX;
  };
  in.must(shape.is_array() && shape.size() == 2 && is_extent(shape[0]) && is_extent(shape[1]), "shape",
          kShape);
  state.weight.out = shape[0].get<int64_t>();
  state.weight.in = shape[1].get<int64_t>();
  if (in.has(kNestedKeys[0])) read_nested(in, state);
  return state;
}

}  // namespace flatshard
