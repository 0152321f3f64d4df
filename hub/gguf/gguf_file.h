#pragma once
// GGUF files, as llama.cpp reads and writes them: metadata, which are keys with values, and tensors in blocks
// (ggml_type.h). Everything is little-endian.
//
// The reader trusts nothing. A file that is truncated, or whose lengths, types or offsets are impossible, is
// an Error that names file and key or tensor. Tensor data is read only on request.

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

// Whether a file begins as a GGUF file does; false if there is no such file.
bool is_gguf(const std::string& path);

// Integers of every width, and floats, are stored as the widest. An array of bools reads as integers.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  uint32_t type;               // its id in the file: ggml_type_of()
  std::vector<int64_t> shape;  // as of a model's parameter: rows first
  int64_t begin = 0;           // in the file

  int64_t values() const;
};

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t bytes() const { return file_.size(); }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  // In the order of the file.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;  // null if there is none

  // The value of a key; null if it is absent. An Error if it has another type.
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

  // Values [first, first + count) of a tensor. An Error if its type is one that Flatshard cannot read.
  void read(const GgufTensor& tensor, int64_t first, int64_t count, float* to) const;

 private:
  void read_header();
  void check_tensor(GgufTensor& tensor, int64_t offset, int64_t data) const;

  InputFile file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> by_name_;
};

// What the tensors are: "Q4_1 x210, F32 x61", the most frequent type first.
std::string gguf_types(const GgufFile& file);

// Writes a file: first all metadata and tensors are declared, then the tensors' blocks follow in this order.
class GgufWriter {
 public:
  void put(const std::string& key, std::string_view value);
  void put(const std::string& key, const char* value) { put(key, std::string_view(value)); }
  void put(const std::string& key, bool value);
  void put(const std::string& key, double value);        // as 32 bits
  void put_size(const std::string& key, int64_t value);  // as 32 bits, unsigned
  void put(const std::string& key, const std::vector<std::string>& values);
  void put(const std::string& key, const std::vector<float>& values);
  void put(const std::string& key, const std::vector<int32_t>& values);
  void put(const std::string& key, const std::vector<bool>& values);
  // The shape has rows first.
  void add_tensor(const std::string& name, GgmlType type, const std::vector<int64_t>& shape);

  int64_t tensor_bytes() const { return next_offset_; }

  void begin(const std::string& path);
  void write(std::span<const std::byte> blocks);  // the next ones, of the tensor begun or the next one
  void finish();                                  // an Error unless every block was written

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
  int64_t written_ = 0;  // of the current tensor
  std::unique_ptr<NewFile> file_;
};

}  // namespace flatshard
