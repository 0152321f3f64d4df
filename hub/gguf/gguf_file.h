#pragma once
// GGUF files, as read and written by llama.cpp: metadata, which are keys with values, and tensors in blocks
// (ggml_type.h). Everything is little-endian.
//
// The reader trusts nothing. If a file is truncated, or has impossible lengths, types or offsets, an Error
// names file and key or tensor. Tensor data is read only on request.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hub/gguf/ggml_type.h"
#include "runtime/check.h"
#include "runtime/input_file.h"
#include "runtime/whole_file.h"

namespace flatshard {

// Whether a file begins like a GGUF file; false if the file does not exist.
bool is_gguf(const std::string& path);

// Integers and floats of every width are stored as the widest type. An array of bools is stored as integers.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  uint32_t type;               // id of the type in the file: see ggml_type_of()
  std::vector<int64_t> shape;  // shape as in a model's parameter: rows first
  int64_t begin = 0;           // offset in the file

  int64_t values() const;
};

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t bytes() const { return file_.size(); }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  // The tensors in the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;  // null if there is none

  // The value of a key; null if it is absent. Throws an Error if the value has another type.
  template <class T>
  const T* find_value(const std::string& key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return nullptr;
    const T* value = std::get_if<T>(&found->second);
    check(value != nullptr, path(), ": ", key, " has a value of another type than expected");
    return value;
  }
  template <class T>
  const T& value(const std::string& key) const {
    const T* found = find_value<T>(key);
    check(found != nullptr, path(), ": ", key, " is missing");
    return *found;
  }

  // Reads values [first, first + count) of a tensor. Throws an Error if Flatshard cannot read its type.
  void read(const GgufTensor& tensor, int64_t first, int64_t count, float* to) const;

 private:
  void read_header();
  void check_tensor(GgufTensor& tensor, int64_t offset, int64_t data) const;

  InputFile file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> by_name_;
};

// The keys that describe a model. They begin with the architecture: "llama.block_count".
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  // A size of at most 31 bits. Some writers store one number for each block; these must be equal.
  int64_t size(const char* key, std::optional<int64_t> absent = {}) const;
  // A real number. It has 32 bits in the file, so the shortest decimal is returned: 1e-05,
  // not 9.99999974e-06.
  double real(const char* key, double absent) const;
  bool flag(const char* key, bool absent) const;
  std::string text(const char* key) const;           // "" if it is absent
  std::vector<int64_t> list(const char* key) const;  // empty if it is absent
  // The file and the key, for errors.
  std::string name(const char* key) const { return str(file_.path(), ": ", prefix_, key); }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// The shortest decimal that rounds to the same 32 bits as the value.
double shortest_decimal(double value);

// A summary of the tensors, the most frequent type first: "Q4_1 x210, F32 x61".
std::string gguf_types(const GgufFile& file);

// Writes a file. First all metadata and tensors are declared; then the tensors' blocks are written in the
// same order.
class GgufWriter {
 public:
  void put(const std::string& key, std::string_view value);
  void put(const std::string& key, const char* value) { put(key, std::string_view(value)); }
  void put(const std::string& key, bool value);
  void put(const std::string& key, double value);        // stored as 32 bits
  void put_size(const std::string& key, int64_t value);  // stored as 32 bits, unsigned
  void put(const std::string& key, const std::vector<std::string>& values);
  void put(const std::string& key, const std::vector<float>& values);
  void put(const std::string& key, const std::vector<int32_t>& values);
  void put(const std::string& key, const std::vector<bool>& values);
  // The shape has rows first.
  void add_tensor(const std::string& name, GgmlType type, const std::vector<int64_t>& shape);

  int64_t tensor_bytes() const { return next_offset_; }

  void begin(const std::string& path);
  void write(std::span<const std::byte> blocks);  // next blocks of the current or next tensor
  void finish();                                  // throws an Error unless every block was written

 private:
  template <class T>
  static void append(std::string& to, T number);
  static void append(std::string& to, std::string_view text);
  void put_key(const std::string& key, uint32_t type);
  template <class T>
  void put_array(const std::string& key, uint32_t type, const T& values);

  std::string metadata_, infos_;
  int64_t keys_ = 0, next_offset_ = 0;
  std::vector<int64_t> sizes_;  // bytes of each tensor, without padding
  size_t current_ = 0;
  int64_t written_ = 0;  // bytes written of the current tensor
  std::unique_ptr<NewFile> file_;
};

}  // namespace flatshard
