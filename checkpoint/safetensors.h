#pragma once
// safetensors files: 8 bytes N (little-endian), N bytes of JSON that name every tensor, its dtype, shape and
// place, then the tensors' bytes one behind the other to the end of the file (json.h has the header's form).
//
// The reader trusts nothing: a file that is cut off, too long, not UTF-8, not JSON, or whose tensors overlap,
// leave holes or are not as long as their shape says is an Error that names file, tensor and bound. Of the
// tensors nothing is read before it is asked for.
//
// The writer's layout is a function of names, dtypes and shapes alone, so many processes can write one file:
// each computes the same layout, one creates the file, and all write their ranges of it. Committing it, by
// renaming, is the caller's.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checksums.h"
#include "checkpoint/json.h"
#include "runtime/dtype.h"
#include "runtime/input_file.h"

namespace flatshard {

// What a file calls a dtype: F32, BF16, F16, I32, U8.
std::string safetensors_name(DType dtype);
// A shape in messages: [2, 3].
std::string in_brackets(const std::vector<int64_t>& shape);

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the file spells it; any of the format's, also those that DType has not
  std::vector<int64_t> shape;
  FileRange bytes;
};

struct SafetensorsContent {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
};

// The length of the header, with the 8 bytes that tell it, of a file that begins with `start` and has so many
// bytes; an Error where it can have none.
size_t safetensors_header_bytes(std::span<const std::byte> start, int64_t file_bytes);
// What such a file holds; `start` has the whole header. An Error where it is not a file of this format.
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
  const SafetensorsEntry* find(const std::string& name) const;  // null where there is none
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

// Where each tensor of a file lies. Tensors are sorted by dtype, widest first, then by name, and the header
// is padded to a multiple of 8 bytes: every tensor is aligned to its elements.
class SafetensorsLayout {
 public:
  using Metadata = std::map<std::string, std::string>;
  // The default metadata is what Hugging Face's readers ask for.
  explicit SafetensorsLayout(std::vector<SafetensorsSpec> specs,
                             const Metadata& metadata = {{"format", "pt"}});

  // The order of the specs as given.
  const std::vector<SafetensorsSpec>& specs() const { return specs_; }
  int64_t offset(size_t index) const { return offsets_[index]; }     // from the start of the file
  int64_t elements(size_t index) const { return elements_[index]; }  // of one tensor
  const std::string& header() const { return header_; }  // the file's first bytes, with their length
  int64_t file_bytes() const { return file_bytes_; }

 private:
  std::vector<SafetensorsSpec> specs_;
  std::vector<int64_t> offsets_, elements_;
  std::string header_;
  int64_t file_bytes_ = 0;
};

// One process's hand on a file that is being written. The layout must outlive it.
class SafetensorsWriter {
 public:
  // With create it makes the file, in place of what has the name, at its full size, header written, tensors
  // zero; others open that file, after the one that creates it is through. What this process writes is added
  // to `sums`, where given.
  SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout, bool create,
                    BlockSums* sums = nullptr);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Elements [first, first + elements) of a tensor in row-major order, of the tensor's dtype.
  void write(size_t index, int64_t first, const void* data, int64_t elements);
  // All of what this process wrote is on disk when it returns.
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
