#pragma once
// Token files, written by prepare and read by the trainer. The format, little-endian:
//   0   8 bytes  "FLATTOK2"
//   8   u32      bytes per token: 2 or 4
//   12  u32      vocabulary size; every token is below it
//   16  u64      number of tokens n
//   24  u64      number of documents d
//   32  u64      bytes of the mask: 0, or n bits and zero bits up to a multiple of 8 bytes
//   40  u64      bytes of the manifest
//   48  tokens   n values of 2 or 4 bytes, then zero bytes up to a multiple of 8
//   ..  u64      the starts of the d documents, and n; ascending from 0
//   ..  mask     bit i % 8 of byte i / 8 tells whether token i is trained; without a mask all tokens are
//   ..  images   only in a file that begins with "FLATTOK3": the table of its images (token_images.h)
//   ..  text     the manifest: the origin of the tokens (dataset.h)
//   ..  sums     checksums of all of the above (checked_file.h), which earlier versions did not write
// A file of another version or length, with damaged bytes or invalid document starts, is refused. If a file
// has images, "images" in its manifest gives the rules for reading them (image_input.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checked_file.h"
#include "text/data/token_column.h"
#include "text/data/token_images.h"
#include "text/images/image_input.h"

namespace flatshard {

// Whether the file begins like a token file of any version.
bool is_token_file(const std::string& path);

// The manifest of a token file, without reading or checking the rest; "" if it has none.
std::string manifest_of(const std::string& path);

class TokenFile {
 public:
  // With `most_documents` above 0, the file appears to end after that many documents.
  explicit TokenFile(const std::string& path, int64_t most_documents = 0);

  int64_t size() const { return tokens_; }
  int64_t vocab() const { return vocab_; }
  int64_t whole_size() const { return whole_tokens_; }  // includes the documents that are left out
  int64_t document_count() const { return documents_; }
  int64_t left_out() const { return left_out_; }  // number of documents after the first most_documents
  const std::string& path() const { return file_.path(); }
  // A note for the user if the bytes of the file and of its columns could not be checked; "" if they were.
  std::string note_on_sums() const;

  // Reads consecutive tokens, starting at `begin`. Throws an Error if a token is not below the vocabulary
  // size, or if the file's size has changed since it was opened.
  void read(int64_t begin, std::span<int32_t> tokens) const;
  // Whether some tokens are not trained.
  bool has_mask() const { return mask_bytes_ > 0; }
  // Sets whether each token, starting at `begin`, is trained, i.e. a target of the loss.
  void read_mask(int64_t begin, std::span<uint8_t> trained) const;
  // "" if the file has no manifest.
  const std::string& manifest() const { return manifest_; }
  // Null if the file has no images.
  const ImageTable* images() const { return images_ ? &*images_ : nullptr; }
  bool has_images() const { return images_.has_value(); }
  const ImageInput& image_input() const { return image_input_; }  // valid if the file has images
  // The document starts in [begin, end).
  std::vector<uint64_t> starts_in(int64_t begin, int64_t end) const;
  // Calls take(begin, length) for every document, in order.
  void each_document(const std::function<void(int64_t begin, int64_t length)>& take) const;

 private:
  // Calls take(block of document starts), beginning at block number `block`, until it returns false.
  template <class Take>
  void each_block_of_starts(int64_t block, Take&& take) const;
  void read_starts();
  void read_images(int64_t begin, int64_t end);
  void keep_first(int64_t documents);

  InputFile file_;
  int64_t tokens_ = 0, whole_tokens_ = 0, vocab_ = 0, width_ = 0, documents_ = 0, left_out_ = 0;
  int64_t starts_at_ = 0, mask_at_ = 0, mask_bytes_ = 0;
  std::string manifest_;
  bool has_sums_ = false;
  std::optional<ImageTable> images_;
  ImageInput image_input_;
  // The first start of every block, an index for binary search that fits into memory.
  std::vector<uint64_t> first_of_block_;
};

// Whether two files have the same documents, with the same tokens trained.
bool have_same_documents(const TokenFile& a, const TokenFile& b);

// Writes a token file document by document; finish() renames it to its final name. Without finish() no
// file remains. To write a pair of files atomically, complete both, then finish both.
class TokenWriter {
 public:
  TokenWriter(const std::string& path, int64_t vocab);
  // `trained` tells for each token whether it is a target; empty: all are. The trained tokens of a rollout
  // have values, which go into columns (token_column.h).
  void add_document(std::span<const int32_t> tokens, std::span<const uint8_t> trained = {},
                    std::span<const DocumentImage> images = {}, const TokenValues& values = {});
  void set_manifest(std::string text) { manifest_ = std::move(text); }
  void complete();  // writes all bytes, still under the temporary name; no documents can be added afterwards
  void finish();
  int64_t size() const { return static_cast<int64_t>(starts_.back()); }
  int64_t file_bytes() const { return file_.size(); }  // valid after complete()
  int64_t document_count() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t trained() const { return trained_; }
  int64_t image_count() const { return images_.size(); }

 private:
  std::string path_;
  int64_t vocab_, width_;
  std::vector<uint64_t> starts_{0};
  std::vector<uint8_t> mask_;  // empty while all tokens are trained
  ImageTableWriter images_;
  AnswerColumnWriter columns_;
  std::string manifest_;
  CheckedNewFile file_;
  int64_t trained_ = 0;
  bool completed_ = false;
};

}  // namespace flatshard
