#pragma once
// The images of a token file (token_file.h): a table that refers to them, never their pixels. A record of the
// table has 80 bytes, little-endian:
//   0   u64      index of its first token in the file
//   8   u64      index behind its last token
//   16  u32      number of its <image> tokens
//   20  u32      frames
//   24  u32      patches
//   28  u32      width, in the orientation of display
//   32  u32      height
//   36  u32      bytes of the path; 0: the image is in the file of images, NAME.images beside NAME
//   40  u32      bytes of the name of the record
//   44  u32      1, or 3 if its record has it as an object (text/images/image_source.h); 0 in files of
//                earlier versions, whose fingerprint is image_ends_fingerprint()
//   48  u64      bytes of the image's file
//   56  u64      image_fingerprint()
//   64  u64      offset of the image in the file of images, or zero
//   72  u64      offset in the names of the path, followed by the name of the record
// Images are in the order of their tokens and do not overlap. A path is relative to the folder of the token
// file if the image is below it, so that both can be moved together.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/input_file.h"
#include "runtime/whole_file.h"
#include "text/images/image_rules.h"
#include "text/images/image_source.h"

namespace flatshard {

// An image of a document that is being written.
struct DocumentImage {
  ImageExtent extent;  // token range in the document
  ImageSource source;
  ImageFacts facts;
  std::string where{};  // the record: "chats.jsonl:12"
};

// An image of a token file.
struct TokenImage {
  ImageExtent extent;  // token range in the file
  ImageFacts facts;
  int64_t at = 0;  // offset in the file of images, unless the image has a path
  int64_t name_at = 0, path_bytes = 0, where_bytes = 0;
  bool by_ends = false;  // the fingerprint is image_ends_fingerprint()
};

class ImageTable {
 public:
  // A table is followed by its names, then u64 count, bytes of the names, and bytes of the file of images.
  static constexpr int64_t kRecordBytes = 80, kTrailerBytes = 24;

  // Opens the table between `begin` and `end`, including its names and trailer, in a token file of `tokens`
  // tokens. Throws an Error if the table is damaged, or the file of images is missing or does not match.
  ImageTable(const InputFile& file, int64_t begin, int64_t end, int64_t tokens);

  int64_t size() const { return count_; }
  // The images that begin in [begin, end).
  std::vector<TokenImage> images_in(int64_t begin, int64_t end) const;
  // Calls take(image) for every image, in order.
  void each(const std::function<void(const TokenImage&)>& take) const;
  // The bytes of the image's file. An Error says to run prepare again if it has changed.
  std::string read(const TokenImage& image) const;
  // The name of an image for errors: "photos/a.png of chats.jsonl:12".
  std::string name_of(const TokenImage& image) const;

 private:
  // Calls take(records) for blocks of records, beginning at `block`, until it returns false.
  template <class Take>
  void each_block(int64_t block, Take&& take) const;
  void check_records();
  std::string text(int64_t begin, int64_t bytes) const;  // a part of the names
  std::string path_of(const TokenImage& image) const;    // "" if the image is in the file of images
  std::string record_of(const TokenImage& image) const;
  std::string file_bytes_of(const TokenImage& image) const;

  const InputFile& file_;
  int64_t begin_ = 0, count_ = 0, names_at_ = 0, name_bytes_ = 0, image_bytes_ = 0, tokens_ = 0;
  std::vector<int64_t> first_of_block_;  // first token of each block's first image
  std::optional<InputFile> images_;      // the file of images
};

class ImageTableWriter {
 public:
  // `path` is the path of the token file.
  explicit ImageTableWriter(const std::string& path) : path_(path) {}

  // Adds an image of the document that begins at token `document`.
  void add(int64_t document, const DocumentImage& image);
  bool empty() const { return records_.empty(); }
  int64_t size() const { return static_cast<int64_t>(records_.size()) / ImageTable::kRecordBytes; }
  std::string bytes() const;  // the table, its names and its trailer
  // Completes the file of images, which exists only if an image has no path.
  void complete();
  void finish();

 private:
  // Writes the bytes of an image, unless they are already in the file. Returns their offset.
  int64_t place(const std::string& bytes);

  std::string path_, records_, names_;
  std::optional<NewFile> images_;
  std::map<std::string, int64_t> places_;  // offsets, by SHA-256
};

// The file of images of a token file.
std::string file_of_images(const std::string& token_file);

}  // namespace flatshard
