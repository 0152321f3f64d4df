#pragma once
// safetensors files: a length N of 8 bytes (little-endian), a JSON header of N bytes with the name, dtype,
// shape and offsets of every tensor, then the tensors' bytes without gaps to the end of the file.
//
// The reader trusts nothing. A file that is truncated, too long, not UTF-8 or not JSON, or whose tensors
// overlap, leave gaps or do not have the size of their shape, causes an Error that names file, tensor and
// bound. Tensor data is read only on request.
//
// The writer's layout depends only on names, dtypes and shapes, so many processes can write one file: each
// computes the same layout, one creates the file, and all write their ranges. The caller commits the file by
// renaming it.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checksums.h"
#include "runtime/dtype.h"
#include "runtime/input_file.h"

namespace flatshard {

// ---- JSON ----
// The header of a file
//   {"__metadata__":{"key":"value",...},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
// and the index of several files
//   {"metadata":{"total_size":24},"weight_map":{"name":"model-00001-of-00002.safetensors",...}}
// Parsing checks only the syntax: UTF-8, no duplicate names, no unknown members in a header, at most 64
// dimensions, and whole numbers from 0 to 2^64 - 1. It takes at most O(n log n) time, because files are
// untrusted. The functions below and tensor_folder.h check the meaning.

struct SafetensorsHeader {
  struct Tensor {
    std::string name, dtype;
    std::vector<uint64_t> shape;
    std::array<uint64_t, 2> offsets{};  // begin and end in the data after the header
  };
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;
};

// The Error for a bad header does not name the file; the caller adds the name.
SafetensorsHeader parse_safetensors_header(std::string_view text);

// The header as compact JSON: metadata, if any, then the tensors in the order given.
std::string to_json(const SafetensorsHeader& header);

struct SafetensorsIndex {
  std::optional<uint64_t> total_size;             // bytes of all tensors, if the file has it
  std::map<std::string, std::string> weight_map;  // tensor -> file
};

// Parses an index like parse_safetensors_header(). Other metadata is ignored.
SafetensorsIndex parse_safetensors_index(std::string_view text);

// The index as JSON with line breaks, in the form that Hugging Face writes.
std::string to_json(const SafetensorsIndex& index);

// ---- files ----

// The format's name of a dtype: F32, BF16, F16, I32, U8.
std::string safetensors_name(DType dtype);
// A shape in the form of messages: [2, 3].
std::string in_brackets(const std::vector<int64_t>& shape);

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // the format's name of the dtype, which DType may lack
  std::vector<int64_t> shape;
  FileRange bytes;
};

struct SafetensorsContent {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // sorted by the position of their bytes
};

// The size of the header, including its 8-byte length, of a file that begins with `start` and has
// `file_bytes` bytes. Throws an Error if the length is impossible.
size_t safetensors_header_bytes(std::span<const std::byte> start, int64_t file_bytes);
// Parses a header; `start` contains all of it. Throws an Error if the file is invalid.
SafetensorsContent parse_safetensors(std::span<const std::byte> start, int64_t file_bytes);

class SafetensorsFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;

  explicit SafetensorsFile(const std::string& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return file_.path(); }
  const InputFile& input() const { return file_; }
  const std::vector<SafetensorsEntry>& entries() const { return content_.entries; }
  const SafetensorsEntry* find(const std::string& name) const;  // null if there is none
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }

 private:
  InputFile file_;
  SafetensorsContent content_;
  std::map<std::string, size_t> by_name_;
};

// A tensor to be written.
struct SafetensorsSpec {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

// The offset of each tensor in a file. Tensors are sorted by dtype, widest first, then by name, and the
// header is padded to a multiple of 8 bytes, so every tensor is aligned to its element size.
class SafetensorsLayout {
 public:
  using Metadata = std::map<std::string, std::string>;
  // Hugging Face's readers require the default metadata.
  explicit SafetensorsLayout(std::vector<SafetensorsSpec> specs,
                             const Metadata& metadata = {{"format", "pt"}});

  // The specs in the order given.
  const std::vector<SafetensorsSpec>& specs() const { return specs_; }
  int64_t offset(size_t index) const { return offsets_[index]; }     // offset of a tensor in the file
  int64_t elements(size_t index) const { return elements_[index]; }  // elements of a tensor
  const std::string& header() const { return header_; }              // includes its 8-byte length
  int64_t file_bytes() const { return file_bytes_; }

 private:
  std::vector<SafetensorsSpec> specs_;
  std::vector<int64_t> offsets_, elements_;
  std::string header_;
  int64_t file_bytes_ = 0;
};

// Writes one process's ranges of a file. The layout must outlive the writer.
class SafetensorsWriter {
 public:
  // With `create` it creates the file at its full size, replacing any existing one, and writes the header;
  // the tensors are zero. The other processes open the file once it exists. Everything this process writes is
  // added to `sums`, if given.
  SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout, bool create,
                    BlockSums* sums = nullptr);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes elements [first, first + elements) of a tensor, in row-major order and the tensor's dtype.
  void write(size_t index, int64_t first, const void* data, int64_t elements);
  // Syncs: everything this process wrote is on disk when it returns.
  void finish();

 private:
  void create_file();
  void check_size() const;
  void write_bytes(int64_t offset, const void* data, int64_t bytes);

  std::string path_;
  const SafetensorsLayout& layout_;
  BlockSums* sums_;
  int file_ = -1;
};

}  // namespace flatshard
