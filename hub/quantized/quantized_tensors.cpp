#include "hub/quantized/quantized_tensors.h"

#include <algorithm>

#include "checkpoint/float_values.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr char kWeight[] = ".weight", kStatePart[] = ".quant_state";
constexpr QuantizedPart kNestedParts[] = {QuantizedPart::nested_absmax, QuantizedPart::nested_table,
                                          QuantizedPart::nested_offset};
constexpr int64_t kMostStateBytes = 1 << 16;

std::string state_name(const std::string& weight, const QuantState& state) {
  return weight + kQuantStateInfix + name_of(state.weight.format.kind);
}

// Whether a file has a tensor for the part. nested_offset has none: it is in quant_state.
bool is_tensor(QuantizedPart part) { return part != QuantizedPart::nested_offset; }

// Reads elements [first, first + count) of a part.
template <class T>
std::vector<T> elements(const QuantizedTensors& tensors, const std::string& part, int64_t first,
                        int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  tensors.read_bytes(part, first * int64_t{sizeof(T)}, count * int64_t{sizeof(T)},
                     reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace

QuantizedTensors::QuantizedTensors(const std::string& path, const TensorEntries& entries)
    : path_(path), entries_(entries), streams_(Device::cpu()), stream_(streams_.add("dequantize")) {
  for (const auto& [name, entry] : entries)
    if (name.find(kStatePart) != name.npos) add(name, *entry);
  for (const auto& [name, state] : states_) check_parts(name, state);
  check_orphans();
}

// Adds the weight that a tensor quant_state describes.
void QuantizedTensors::add(const std::string& name, const SafetensorsEntry& entry) {
  const std::string weight = name.substr(0, name.find(kStatePart)), where = path_ + ": " + name;
  check(weight.ends_with(kWeight), where, ": describes ", weight, ", must describe the weight of a layer");
  check(!states_.contains(weight), where, ": ", weight, " has a second quant_state, must have one");
  check(entry.dtype == safetensors_name(DType::u8), where, " is ", entry.dtype, ", must be U8");
  check(entry.bytes.size <= kMostStateBytes, where, ": has ", entry.bytes.size, " bytes, must have at most ",
        kMostStateBytes);
  std::string text(static_cast<size_t>(entry.bytes.size), '\0');
  entry.bytes.read(0, entry.bytes.size, text.data());
  const QuantState state = parse_quant_state(text, where);
  const std::string expected = state_name(weight, state);
  check(name == expected, where, ": its quant_type is ", name_of(state.weight.format.kind),
        ", so its name must be ", expected);
  weights_[weight] = state.weight;
  states_[weight] = state;
}

void QuantizedTensors::check_parts(const std::string& name, const QuantState& state) const {
  const FourBitWeight& weight = state.weight;
  const auto found = [&](const std::string& part) {
    const auto entry = entries_.find(part);
    check(entry != entries_.end(), path_, ": ", part, " is missing; ", name, " is quantized");
    return entry->second;
  };
  for (const QuantizedPart part : parts_of(weight.format)) {
    if (!is_tensor(part)) continue;
    const std::string part_name = name + suffix_of(part);
    const SafetensorsEntry& entry = *found(part_name);
    const int64_t expected = elements_of_part(weight, part);
    if (part == QuantizedPart::codes) {
      check(entry.dtype == "U8" || float_dtype(entry), path_, ": ", name, " is ", entry.dtype,
            ", but it is quantized and must be U8, BF16, F16 or F32");
      check(entry.bytes.size == expected, path_, ": ", name, " has ", entry.bytes.size,
            " bytes of codes, but ", weight.out, " x ", weight.in, " elements have ", expected);
      continue;
    }
    const std::string dtype = safetensors_name(dtype_of_part(weight, part));
    const std::vector<int64_t> shape{expected};
    check(entry.dtype == dtype && entry.shape == shape, path_, ": ", part_name, " is ", entry.dtype, ' ',
          in_brackets(entry.shape), ", but for ", weight.out, " x ", weight.in, " elements in blocks of ",
          weight.format.block, weight.format.nested ? ", nested," : "", " it must be ", dtype, ' ',
          in_brackets(shape));
  }
  for (const QuantizedPart part : kNestedParts) {
    const std::string part_name = name + suffix_of(part);
    check(!entries_.contains(part_name) || (weight.format.nested && is_tensor(part)), path_, ": ", part_name,
          " is unexpected: ",
          is_tensor(part) ? "quant_state describes no nested scales" : "the offset is in quant_state");
  }
}

// Refuses parts of weights that have no quant_state.
void QuantizedTensors::check_orphans() const {
  for (const QuantizedPart part : {QuantizedPart::absmax, QuantizedPart::table, QuantizedPart::nested_absmax,
                                   QuantizedPart::nested_table})
    for (const auto& [name, entry] : entries_) {
      const std::string suffix = std::string(kWeight) + suffix_of(part);
      if (!name.ends_with(suffix)) continue;
      const std::string weight = name.substr(0, name.size() - suffix.size()) + kWeight;
      check(states_.contains(weight), path_, ": ", name, ": ", weight, kQuantStateInfix,
            "nf4 (or fp4) is missing");
    }
}

std::vector<std::string> QuantizedTensors::names_of(const std::string& weight) const {
  const QuantState& described = state(weight);
  std::vector<std::string> names{state_name(weight, described)};
  for (const QuantizedPart part : parts_of(described.weight.format))
    if (is_tensor(part)) names.push_back(weight + suffix_of(part));
  return names;
}

std::vector<std::string> QuantizedTensors::names() const {
  std::vector<std::string> all;
  for (const auto& [name, state] : states_)
    for (std::string& part : names_of(name)) all.push_back(std::move(part));
  return all;
}

void QuantizedTensors::read_bytes(const std::string& part, int64_t first, int64_t count,
                                  std::byte* to) const {
  const std::optional<PartOfWeight> found = find_part(weights_, part);
  check(found.has_value(), path_, ": ", part, ": not a part of a quantized weight");
  const auto& [name, weight] = *found->weight;
  const DType dtype = dtype_of_part(weight, found->part);
  const int64_t size = elements_of_part(weight, found->part) * size_of(dtype);
  check(first >= 0 && count >= 0 && first <= size && count <= size - first, path_, ": ", part, ": ", count,
        " bytes from ", first, " exceed its ", size);
  if (!is_tensor(found->part)) {
    const float offset = states_.at(name).nested_offset;
    std::copy_n(reinterpret_cast<const std::byte*>(&offset) + first, count, to);
    return;
  }
  const SafetensorsEntry& entry = *entries_.at(part);
  if (dtype == DType::u8) return entry.bytes.read(first, count, to);
  constexpr int64_t kSize = sizeof(float);
  const int64_t begin = first / kSize, end = block_count(first + count, kSize);  // floats that are touched
  std::vector<float> values(static_cast<size_t>(end - begin));
  entry.bytes.read(begin * kSize, (end - begin) * kSize, values.data());
  const std::optional<int64_t> wrong = first_non_finite(values);
  check(!wrong, path_, ": ", part, ": element ", begin + wrong.value_or(0), " is ",
        wrong ? values[static_cast<size_t>(*wrong)] : 0.0f,
        ", must be finite: the weights are damaged: download them again");
  std::copy_n(reinterpret_cast<const std::byte*>(values.data()) + (first - begin * kSize), count, to);
}

// Reads whole blocks around the range, and whole blocks of scales if the scales are nested, and dequantizes
// them as a matrix with one row.
void QuantizedTensors::read_piece(const std::string& name, const FourBitWeight& weight, int64_t first,
                                  int64_t count, float* to) {
  const FourBitFormat& format = weight.format;
  const int64_t unit = format.nested ? format.block * kNestedBlock : format.block;
  const int64_t start = first / unit * unit, n = first + count - start, blocks = block_count(n, format.block);
  const auto part = [&](QuantizedPart of) { return name + suffix_of(of); };
  std::vector<uint8_t> codes = elements<uint8_t>(*this, name, start / 2, code_bytes(n)), scale_codes;
  std::vector<float> table = elements<float>(*this, part(QuantizedPart::table), 0, 16), absmax, nested_absmax,
                     nested_table;
  float nested_offset = states_.at(name).nested_offset;
  FourBitMatrix matrix{.codes = tensor_of(codes.data(), {std::ssize(codes)}),
                       .absmax = {},
                       .table = tensor_of(table.data(), {std::ssize(table)}),
                       .block = format.block,
                       .shape = {1, n}};
  const std::string absmax_name = part(QuantizedPart::absmax);
  if (format.nested) {
    const int64_t groups = block_count(blocks, kNestedBlock);
    scale_codes = elements<uint8_t>(*this, absmax_name, start / format.block, blocks);
    nested_absmax = elements<float>(*this, part(QuantizedPart::nested_absmax), start / unit, groups);
    nested_table = elements<float>(*this, part(QuantizedPart::nested_table), 0, 256);
    matrix.absmax = tensor_of(scale_codes.data(), {blocks});
    matrix.nested_absmax = tensor_of(nested_absmax.data(), {groups});
    matrix.nested_table = tensor_of(nested_table.data(), {std::ssize(nested_table)});
    matrix.nested_offset = tensor_of(&nested_offset, {1});
  } else {
    absmax = elements<float>(*this, absmax_name, start / format.block, blocks);
    matrix.absmax = tensor_of(absmax.data(), {blocks});
  }
  dequantize_four_bit(stream_, {.y = tensor_of(to, {count}), .w = matrix, .first = first - start});
}

void QuantizedTensors::read(const std::string& name, int64_t first, int64_t count, float* to) {
  const auto found = weights_.find(name);
  check(found != weights_.end(), path_, ": ", name, ": not a quantized weight");
  const int64_t size = found->second.elements();
  check(first >= 0 && count >= 0 && first <= size && count <= size - first, path_, ": ", name, ": ", count,
        " elements from ", first, " exceed its ", size);
  for (const int64_t end = first + count; first < end;) {
    const int64_t n = std::min(kValueBlock, end - first);
    read_piece(name, found->second, first, n, to);
    first += n;
    to += n;
  }
}

std::vector<SafetensorsSpec> quantized_specs(const std::string& name, const QuantState& state,
                                             DType storage) {
  std::vector<SafetensorsSpec> specs;
  for (const QuantizedPart part : parts_of(state.weight.format)) {
    if (!is_tensor(part)) continue;
    const int64_t n = elements_of_part(state.weight, part);
    if (part != QuantizedPart::codes) {
      specs.push_back(
          {.name = name + suffix_of(part), .dtype = dtype_of_part(state.weight, part), .shape = {n}});
      continue;
    }
    check(n % size_of(storage) == 0, name, ": its ", n, " bytes of codes are not a whole number of ",
          torch_name_of(storage), " elements; choose the storage dtype uint8");
    specs.push_back({.name = name, .dtype = storage, .shape = {n / size_of(storage), 1}});
  }
  specs.push_back(
      {.name = state_name(name, state), .dtype = DType::u8, .shape = {std::ssize(quant_state_json(state))}});
  return specs;
}

}  // namespace flatshard
