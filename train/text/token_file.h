#pragma once
// Token files: what prepare writes and the trainer reads. Little-endian, byte by byte:
//   0   8 bytes  "FLATTOK1"
//   8   u32      bytes per token: 2 or 4
//   12  u32      vocabulary size; every token is below it
//   16  u64      number of tokens n
//   24  u64      number of documents d
//   32  tokens   n values of 2 or 4 bytes, then zero bytes up to a multiple of 8
//   ..  u64      d + 1 document starts: the first is 0, they rise, the last is n
// A file that is longer or shorter than that, or whose starts are not such, is refused.

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

  // Reads the tokens from a position on. An Error names file, position, value and bound when one is not below
  // the vocabulary, and both sizes when the file no longer has the size that it was opened with.
  void read(int64_t begin, std::span<int32_t> tokens) const;
  // The document starts that lie in [begin, end).
  std::vector<uint64_t> starts_in(int64_t begin, int64_t end) const;

 private:
  // Hands over the document starts in blocks, from the block of this number on, while `take` asks for more.
  template <class Take>
  void each_block_of_starts(int64_t block, Take&& take) const;
  void read_starts();

  InputFile file_;
  int64_t tokens_ = 0, vocab_ = 0, width_ = 0, documents_ = 0;
  // The first start of every block of the file's list: where a search reads on. Few enough for memory.
  std::vector<uint64_t> first_of_block_;
};

// Writes a token file document by document; finish() completes it under its final name. Nothing is left
// behind when it is not finished. Who writes two files that belong together completes both and then finishes
// both.
class TokenWriter {
 public:
  TokenWriter(const std::string& path, int64_t vocab);
  void add_document(std::span<const int32_t> tokens);
  void complete();  // the bytes are all there, under a temporary name; no more documents
  void finish();
  int64_t size() const { return static_cast<int64_t>(starts_.back()); }
  int64_t file_bytes() const { return file_.size(); }  // when complete
  int64_t document_count() const { return static_cast<int64_t>(starts_.size()) - 1; }

 private:
  std::string path_;
  int64_t vocab_, width_;
  std::vector<uint64_t> starts_{0};
  NewFile file_;
  bool completed_ = false;
};

}  // namespace flatshard
