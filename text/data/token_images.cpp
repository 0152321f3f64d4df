#include "text/data/token_images.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/sha256.h"
#include "text/data/kept_files.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 64;  // number of records read at a time
constexpr std::string_view kMagic = "FLATIMG1";
constexpr int64_t kIsObject = 2;  // a bit of the number at offset 44
constexpr int64_t kMostPathBytes = 1 << 16;

template <class T>
void append(std::string& bytes, int64_t value) {
  const T number = static_cast<T>(value);
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class T>
int64_t number(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
}

TokenImage image_of(const std::byte* record) {
  TokenImage image{.extent = {.begin = number<uint64_t>(record),
                              .end = number<uint64_t>(record + 8),
                              .tokens = number<uint32_t>(record + 16),
                              .frames = number<uint32_t>(record + 20),
                              .patches = number<uint32_t>(record + 24)},
                   .facts = {.size = {number<uint32_t>(record + 28), number<uint32_t>(record + 32)},
                             .bytes = number<uint64_t>(record + 48),
                             .is_object = (number<uint32_t>(record + 44) & kIsObject) != 0},
                   .at = number<uint64_t>(record + 64),
                   .name_at = number<uint64_t>(record + 72),
                   .path_bytes = number<uint32_t>(record + 36),
                   .where_bytes = number<uint32_t>(record + 40),
                   .by_ends = number<uint32_t>(record + 44) == 0};
  std::memcpy(&image.facts.fingerprint, record + 56, 8);
  return image;
}

fs::path folder_of(const std::string& token_file) {
  return fs::absolute(token_file).lexically_normal().parent_path();
}

// The path as the table stores it.
std::string stored_path(const std::string& path, const std::string& token_file) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path relative = absolute.lexically_relative(folder_of(token_file));
  return (relative.empty() || *relative.begin() == ".." ? absolute : relative).string();
}

}  // namespace

std::string file_of_images(const std::string& token_file) { return token_file + ".images"; }

ImageTable::ImageTable(const InputFile& file, int64_t begin, int64_t end, int64_t tokens)
    : file_(file), begin_(begin), tokens_(tokens) {
  const auto damaged = [&](const auto&... why) { fail(str(file.path(), ": is damaged: ", why...)); };
  if (end - begin < kTrailerBytes) damaged("the table of its images is cut off");
  std::array<std::byte, kTrailerBytes> trailer{};
  file.read(end - kTrailerBytes, kTrailerBytes, trailer.data());
  count_ = number<uint64_t>(trailer.data());
  name_bytes_ = number<uint64_t>(trailer.data() + 8);
  image_bytes_ = number<uint64_t>(trailer.data() + 16);
  const int64_t room = end - begin - kTrailerBytes;
  if (count_ < 1 || count_ > room / kRecordBytes || name_bytes_ != room - count_ * kRecordBytes)
    damaged("the table of its images has ", room, " bytes, which are not ", count_, " images and ",
            name_bytes_, " bytes of names");
  names_at_ = begin + count_ * kRecordBytes;
  if (image_bytes_ > 0) {
    const std::string path = file_of_images(file.path());
    check(fs::exists(path), path, ": is missing, and holds images of ", file.path(), ": copy it, too, or ",
          remedy_of(file.path()));
    images_.emplace(path);
    check(images_->size() == image_bytes_, path, ": has ", images_->size(), " bytes, must have ",
          image_bytes_, " for ", file.path(), ": copy both again, or ", remedy_of(file.path()));
  }
  check_records();
}

template <class Take>
void ImageTable::each_block(int64_t block, Take&& take) const {
  std::array<std::byte, static_cast<size_t>(kBlock * kRecordBytes)> bytes;
  std::vector<TokenImage> images;
  for (int64_t first = block * kBlock; first < count_; first += kBlock) {
    const int64_t count = std::min(kBlock, count_ - first);
    file_.read(begin_ + first * kRecordBytes, count * kRecordBytes, bytes.data());
    images.clear();
    for (int64_t i = 0; i < count; ++i) images.push_back(image_of(bytes.data() + i * kRecordBytes));
    if (!take(images)) return;
  }
}

void ImageTable::check_records() {
  int64_t end = 0, number = 0;
  each_block(0, [&](const std::vector<TokenImage>& images) {
    first_of_block_.push_back(images.front().extent.begin);
    for (const TokenImage& image : images) {
      const auto& [begin, behind, tokens, frames, patches] = image.extent;
      const bool fits = begin >= end && begin < behind && behind <= tokens_ && tokens >= 1 &&
                        tokens <= behind - begin && frames >= 1 && patches >= frames;
      const bool named =
          image.name_at <= name_bytes_ && image.path_bytes + image.where_bytes <= name_bytes_ - image.name_at;
      const bool placed =
          image.path_bytes > 0 || (image.at <= image_bytes_ && image.facts.bytes <= image_bytes_ - image.at);
      check(fits && named && placed && image.facts.bytes <= kMostImageBytes, file_.path(),
            ": is damaged: its image ", number, " is not where the table says");
      end = behind;
      ++number;
    }
    return true;
  });
}

std::vector<TokenImage> ImageTable::images_in(int64_t begin, int64_t end) const {
  const auto behind = std::lower_bound(first_of_block_.begin(), first_of_block_.end(), begin);
  std::vector<TokenImage> found;
  each_block(std::max<int64_t>(0, behind - first_of_block_.begin() - 1), [&](const auto& images) {
    for (const TokenImage& image : images)
      if (image.extent.begin >= begin && image.extent.begin < end) found.push_back(image);
    return images.back().extent.begin < end;
  });
  return found;
}

void ImageTable::each(const std::function<void(const TokenImage&)>& take) const {
  each_block(0, [&](const std::vector<TokenImage>& images) {
    for (const TokenImage& image : images) take(image);
    return true;
  });
}

std::string ImageTable::text(int64_t begin, int64_t bytes) const {
  check(bytes <= kMostPathBytes, file_.path(), ": is damaged: a name has ", bytes, " bytes");
  std::string text(static_cast<size_t>(bytes), '\0');
  file_.read(names_at_ + begin, bytes, text.data());
  return text;
}

std::string ImageTable::path_of(const TokenImage& image) const {
  const std::string stored = text(image.name_at, image.path_bytes);
  return stored.empty() ? "" : (fs::path(file_.path()).parent_path() / stored).string();
}

std::string ImageTable::name_of(const TokenImage& image) const {
  const std::string path = path_of(image);
  return str(path.empty() ? "the image" : path, " of ", record_of(image));
}

std::string ImageTable::record_of(const TokenImage& image) const {
  return text(image.name_at + image.path_bytes, image.where_bytes);
}

std::string ImageTable::file_bytes_of(const TokenImage& image) const {
  const std::string path = path_of(image);
  if (path.empty()) {
    images_->check_size();
    std::string bytes(static_cast<size_t>(image.facts.bytes), '\0');
    images_->read(image.at, image.facts.bytes, bytes.data());
    return bytes;
  }
  try {
    return read_image({.path = path});
  } catch (const Error& error) {
    throw Error(str(error.what(), " (an image of ", record_of(image), ')'), error.where);
  }
}

std::string ImageTable::read(const TokenImage& image) const {
  std::string bytes = file_bytes_of(image);
  const uint64_t found = image.by_ends ? image_ends_fingerprint(bytes) : image_fingerprint(bytes);
  check(std::ssize(bytes) == image.facts.bytes && found == image.facts.fingerprint, name_of(image),
        ": has changed since ", file_.path(), " was made: ", remedy_of(file_.path()));
  return bytes;
}

void ImageTableWriter::add(int64_t document, const DocumentImage& image) {
  const std::string path = image.source.path.empty() ? "" : stored_path(image.source.path, path_);
  check(std::ssize(path) <= kMostPathBytes && std::ssize(image.where) <= kMostPathBytes, image.where,
        ": the path of an image has more than ", kMostPathBytes, " bytes");
  append<uint64_t>(records_, document + image.extent.begin);
  append<uint64_t>(records_, document + image.extent.end);
  append<uint32_t>(records_, image.extent.tokens);
  append<uint32_t>(records_, image.extent.frames);
  append<uint32_t>(records_, image.extent.patches);
  append<uint32_t>(records_, image.facts.size.width);
  append<uint32_t>(records_, image.facts.size.height);
  append<uint32_t>(records_, std::ssize(path));
  append<uint32_t>(records_, std::ssize(image.where));
  append<uint32_t>(records_, 1 | (image.facts.is_object ? kIsObject : 0));
  append<uint64_t>(records_, image.facts.bytes);
  append<uint64_t>(records_, static_cast<int64_t>(image.facts.fingerprint));
  append<uint64_t>(records_, path.empty() ? place(image.source.bytes) : 0);
  append<uint64_t>(records_, std::ssize(names_));
  names_ += path + image.where;
}

int64_t ImageTableWriter::place(const std::string& bytes) {
  Sha256 sha;
  sha.add(bytes.data(), bytes.size());
  if (!images_) images_.emplace(file_of_images(path_)).write(kMagic);
  const auto [found, is_new] = places_.emplace(sha.hex(), images_->size());
  if (is_new) images_->write(bytes);
  return found->second;
}

std::string ImageTableWriter::bytes() const {
  std::string all = records_ + names_;
  append<uint64_t>(all, size());
  append<uint64_t>(all, std::ssize(names_));
  append<uint64_t>(all, images_ ? images_->size() : 0);
  return all;
}

void ImageTableWriter::complete() {
  if (images_) images_->complete();
}

void ImageTableWriter::finish() {
  if (images_) images_->finish();
}

}  // namespace flatshard
