#pragma once
// The images of a token file (token_file.h): a table that refers to them, never their pixels. A record of the
// table has 80 bytes, little-endian:
//   0   u64      where its tokens begin among those of the file
//   8   u64      where they end
//   16  u32      how many of them are <image>
//   20  u32      frames
//   24  u32      patches
//   28  u32      width, as it is to be seen
//   32  u32      height
//   36  u32      bytes of the path; 0: the image is in the file of images, NAME.images beside NAME
//   40  u32      bytes of the name of the record
//   44  u32      1, or 3 if its record has it as an object (text/images/image_source.h); 0 in files of
//                earlier versions, whose last number is image_ends_fingerprint()
//   48  u64      bytes of the image's file
//   56  u64      image_fingerprint()
//   64  u64      where these bytes begin in the file of images, or zero
//   72  u64      where the path, and behind it the name of the record, begin in the names
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

// An image of a document that is written.
struct DocumentImage {
  ImageExtent extent;  // among the tokens of the document
  ImageSource source;
  ImageFacts facts;
  std::string where{};  // the record: "chats.jsonl:12"
};

// An image of a token file.
struct TokenImage {
  ImageExtent extent;  // among the tokens of the file
  ImageFacts facts;
  int64_t at = 0;  // in the file of images, unless it has a path
  int64_t name_at = 0, path_bytes = 0, where_bytes = 0;
  bool by_ends = false;  // the fingerprint
};

class ImageTable {
 public:
  // Behind a table are its names, then u64 count, bytes of the names, and bytes of the file of images.
  static constexpr int64_t kRecordBytes = 80, kTrailerBytes = 24;

  // The table that begins at `begin` of a token file of so many tokens and ends, with its names and trailer,
  // at `end`. An Error if it is damaged, or the file of images is missing or another.
  ImageTable(const InputFile& file, int64_t begin, int64_t end, int64_t tokens);

  int64_t size() const { return count_; }
  // The images that begin in [begin, end).
  std::vector<TokenImage> images_in(int64_t begin, int64_t end) const;
  // Calls take(image) for every image, in order.
  void each(const std::function<void(const TokenImage&)>& take) const;
  // The bytes of the image's file. An Error says to run prepare again if it has changed.
  std::string read(const TokenImage& image) const;
  // "photos/a.png of chats.jsonl:12", for errors.
  std::string name_of(const TokenImage& image) const;

 private:
  // Calls take(records) for blocks of records from this block on, until it returns false.
  template <class Take>
  void each_block(int64_t block, Take&& take) const;
  void check_records();
  std::string text(int64_t begin, int64_t bytes) const;  // of the names
  std::string path_of(const TokenImage& image) const;    // "" in the file of images
  std::string record_of(const TokenImage& image) const;
  std::string file_bytes_of(const TokenImage& image) const;

  const InputFile& file_;
  int64_t begin_ = 0, count_ = 0, names_at_ = 0, name_bytes_ = 0, image_bytes_ = 0, tokens_ = 0;
  std::vector<int64_t> first_of_block_;  // where the first image of each block begins
  std::optional<InputFile> images_;      // the file of images
};

class ImageTableWriter {
 public:
  // Of the token file of this name.
  explicit ImageTableWriter(const std::string& path) : path_(path) {}

  // Adds an image of the document that begins at this token.
  void add(int64_t document, const DocumentImage& image);
  bool empty() const { return records_.empty(); }
  int64_t size() const { return static_cast<int64_t>(records_.size()) / ImageTable::kRecordBytes; }
  std::string bytes() const;  // of the table, its names and its trailer
  // Of the file of images, which exists only if an image has no path.
  void complete();
  void finish();

 private:
  // Writes the bytes of an image, once for images that are alike. Returns where.
  int64_t place(const std::string& bytes);

  std::string path_, records_, names_;
  std::optional<NewFile> images_;
  std::map<std::string, int64_t> places_;  // by SHA-256
};

// The file of images of a token file.
std::string file_of_images(const std::string& token_file);

}  // namespace flatshard
