#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "runtime/error_context.h"

namespace flatshard {
namespace {

constexpr size_t kLengthBytes = 8;

struct FileDType {
  const char* name;
  uint64_t bits;
};

// All dtypes of the format, in the order by which it sorts tensors.
constexpr FileDType kFileDTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};

const FileDType* find_dtype(const std::string& name) {
  const auto* found = std::find_if(std::begin(kFileDTypes), std::end(kFileDTypes),
                                   [&](const FileDType& d) { return d.name == name; });
  return found == std::end(kFileDTypes) ? nullptr : found;
}

std::string listed(const auto& shape) {
  std::string text = "[";
  for (const auto extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + ']';
}

// The size of a tensor of this dtype and shape.
uint64_t bytes_of(const SafetensorsHeader::Tensor& tensor) {
  const FileDType* dtype = find_dtype(tensor.dtype);
  check(dtype != nullptr, "\"", tensor.name, "\": dtype \"", tensor.dtype, "\" is not a dtype of the format");
  uint64_t elements = 1, bits = 0;
  bool overflows = false;
  for (const uint64_t extent : tensor.shape) overflows |= __builtin_mul_overflow(elements, extent, &elements);
  check(!overflows, "\"", tensor.name, "\": the element count of shape ", listed(tensor.shape), " overflows");
  check(!__builtin_mul_overflow(elements, dtype->bits, &bits), "\"", tensor.name,
        "\": the byte count of shape ", listed(tensor.shape), " of ", tensor.dtype, " overflows");
  check(bits % 8 == 0, "\"", tensor.name, "\": ", elements, " elements of ", tensor.dtype,
        " are not a whole number of bytes");
  return bits / 8;
}

// The entries of a header. The tensors have `data_bytes` bytes, from offset `data` of the file on.
std::vector<SafetensorsEntry> entries_of(SafetensorsHeader& header, int64_t data, uint64_t data_bytes) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const auto& a, const auto& b) { return a.offsets < b.offsets; });
  std::vector<SafetensorsEntry> entries;
  uint64_t at = 0;
  for (const SafetensorsHeader::Tensor& tensor : header.tensors) {
    const auto [begin, end] = tensor.offsets;
    check(begin == at && end >= begin, "invalid offset: \"", tensor.name, "\" lies at ",
          listed(tensor.offsets), ", must begin at ", at, " and not end before it begins");
    const uint64_t bytes = bytes_of(tensor);
    check(end - begin == bytes, "wrong size: \"", tensor.name, "\" has ", end - begin, " bytes, ",
          tensor.dtype, ' ', listed(tensor.shape), " needs ", bytes);
    check(end <= data_bytes, "incomplete buffer: \"", tensor.name, "\" ends at byte ", end, " of ",
          data_bytes);
    for (const uint64_t extent : tensor.shape)
      check(extent <= INT64_MAX, "\"", tensor.name, "\": an extent of ", extent, " overflows");
    entries.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = {tensor.shape.begin(), tensor.shape.end()},
                       .bytes = {.file = nullptr,
                                 .begin = data + static_cast<int64_t>(begin),
                                 .size = static_cast<int64_t>(bytes)}});
    at = end;
  }
  check(at == data_bytes, "incomplete buffer: the tensors end at byte ", at, " of ", data_bytes);
  return entries;
}

}  // namespace

std::string safetensors_name(DType dtype) {
  std::string name = name_of(dtype);
  for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::string in_brackets(const std::vector<int64_t>& shape) { return listed(shape); }

size_t safetensors_header_bytes(std::span<const std::byte> start, int64_t file_bytes) {
  check(start.size() >= kLengthBytes, "header too small: the file has ", start.size(),
        " bytes, must have at least ", kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  check(length <= SafetensorsFile::kMaxHeaderBytes, "header too large: ", length, " bytes, must be at most ",
        SafetensorsFile::kMaxHeaderBytes);
  const uint64_t left = static_cast<uint64_t>(file_bytes) - kLengthBytes;
  check(length <= left, "invalid header length: ", length, " bytes, but only ", left, " follow");
  return length + kLengthBytes;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> start, int64_t file_bytes) {
  const size_t data = safetensors_header_bytes(start, file_bytes);
  SafetensorsHeader header = parse_safetensors_header(
      {reinterpret_cast<const char*>(start.data()) + kLengthBytes, data - kLengthBytes});
  std::vector<SafetensorsEntry> entries =
      entries_of(header, static_cast<int64_t>(data), static_cast<uint64_t>(file_bytes) - data);
  return {.metadata = std::move(header.metadata), .entries = std::move(entries)};
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  std::vector<std::byte> start(std::min(kLengthBytes, static_cast<size_t>(file_.size())));
  file_.read(0, std::ssize(start), start.data());
  start.resize(with_place(path, [&] { return safetensors_header_bytes(start, file_.size()); }));
  file_.read(0, std::ssize(start), start.data());
  content_ = with_place(path, [&] { return parse_safetensors(start, file_.size()); });
  for (size_t i = 0; i < entries().size(); ++i) {
    content_.entries[i].bytes.file = &file_;
    by_name_[entries()[i].name] = i;
  }
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries()[found->second];
}

}  // namespace flatshard
