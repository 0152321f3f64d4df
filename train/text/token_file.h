#pragma once
// Token files, written by prepare and read by the trainer. The format, little-endian:
//   0   8 bytes  "FLATTOK1"
//   8   u32      bytes per token: 2 or 4
//   12  u32      vocabulary size; every token is below it
//   16  u64      number of tokens n
//   24  u64      number of documents d
//   32  tokens   n values of 2 or 4 bytes, then zero bytes up to a multiple of 8
//   ..  u64      d + 1 document starts, ascending from 0 to n
// A file of another length, or with other document starts, is refused.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/input_file.h"
#include "runtime/whole_file.h"

namespace flatshard {

class TokenFile {
 public:
  explicit TokenFile(const std::string& path);

  int64_t size() const { return tokens_; }
  int64_t vocab() const { return vocab_; }
  int64_t document_count() const { return documents_; }
  const std::string& path() const { return file_.path(); }

  // Reads tokens from position `begin`. An Error if a token is not below the vocabulary size, or if the
  // file's size has changed since it was opened.
  void read(int64_t begin, std::span<int32_t> tokens) const;
  // The document starts in [begin, end).
  std::vector<uint64_t> starts_in(int64_t begin, int64_t end) const;

 private:
  // Calls take(block of document starts), from this block number on, until it returns false.
  template <class Take>
  void each_block_of_starts(int64_t block, Take&& take) const;
  void read_starts();

  InputFile file_;
  int64_t tokens_ = 0, vocab_ = 0, width_ = 0, documents_ = 0;
  // The first start of every block, an index for binary search that fits into memory.
  std::vector<uint64_t> first_of_block_;
};

// Writes a token file document by document; finish() renames it to its final name. Without finish() nothing
// is left behind. To write two files that belong together, complete both, then finish both.
class TokenWriter {
 public:
  TokenWriter(const std::string& path, int64_t vocab);
  void add_document(std::span<const int32_t> tokens);
  void complete();  // writes all bytes, still under the temporary name; no more documents after it
  void finish();
  int64_t size() const { return static_cast<int64_t>(starts_.back()); }
  int64_t file_bytes() const { return file_.size(); }  // after complete()
  int64_t document_count() const { return static_cast<int64_t>(starts_.size()) - 1; }

 private:
  std::string path_;
  int64_t vocab_, width_;
  std::vector<uint64_t> starts_{0};
  NewFile file_;
  bool completed_ = false;
};

}  // namespace flatshard
