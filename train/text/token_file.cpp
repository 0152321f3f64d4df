#include "train/text/token_file.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr char kMagic[] = "FLATTOK1";
constexpr int64_t kHeaderBytes = 32;

template <class T>
T read(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(path) {
  const std::byte* data = file_.bytes().data();
  const int64_t bytes = static_cast<int64_t>(file_.bytes().size());
  check(bytes >= kHeaderBytes && std::memcmp(data, kMagic, 8) == 0, path,
        ": not a token file (make one with prepare)");
  width_ = read<uint32_t>(data + 8);
  vocab_ = read<uint32_t>(data + 12);
  const uint64_t tokens = read<uint64_t>(data + 16), documents = read<uint64_t>(data + 24);
  check(width_ == 2 || width_ == 4, path, ": ", width_, " bytes per token, must be 2 or 4");
  // Bounded by the file's size first, so that the sums below cannot overflow.
  check(tokens <= static_cast<uint64_t>(bytes) && documents < static_cast<uint64_t>(bytes), path,
        ": says it holds ", tokens, " tokens in ", documents, " documents, but the file has only ", bytes,
        " bytes");
  tokens_ = static_cast<int64_t>(tokens);
  const int64_t starts_at = kHeaderBytes + padded(tokens_ * width_);
  const int64_t expected = starts_at + 8 * (static_cast<int64_t>(documents) + 1);
  check(bytes == expected, path, ": has ", bytes, " bytes, must have ", expected,
        "; it is cut off or damaged");
  starts_ = {reinterpret_cast<const uint64_t*>(data + starts_at), documents + 1};
  const bool rising = std::is_sorted(starts_.begin(), starts_.end());
  check(rising && starts_.front() == 0 && starts_.back() == tokens, path,
        ": the document starts are damaged");
}

int32_t TokenFile::operator[](int64_t position) const {
  const std::byte* at = file_.bytes().data() + kHeaderBytes + position * width_;
  const uint32_t token = width_ == 2 ? read<uint16_t>(at) : read<uint32_t>(at);
  check(token < static_cast<uint32_t>(vocab_), path(), ": token ", token, " at ", position,
        " is outside the vocabulary of ", vocab_);
  return static_cast<int32_t>(token);
}

std::span<const uint64_t> TokenFile::starts_in(int64_t begin, int64_t end) const {
  const auto first = std::lower_bound(starts_.begin(), starts_.end(), static_cast<uint64_t>(begin));
  const auto last = std::lower_bound(first, starts_.end(), static_cast<uint64_t>(end));
  return {first, last};
}

TokenWriter::TokenWriter(const std::string& path, int64_t vocab)
    : path_(path), vocab_(vocab), width_(vocab <= 65536 ? 2 : 4), file_(path) {
  check(vocab > 0 && vocab <= INT32_MAX, path_, ": a vocabulary of ", vocab,
        " tokens, must be positive and below 2^31");
  file_.write(std::string(kHeaderBytes, '\0'));
}

void TokenWriter::add_document(std::span<const int32_t> tokens) {
  std::string bytes(tokens.size() * static_cast<size_t>(width_), '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    check(tokens[i] >= 0 && tokens[i] < vocab_, path_, ": token ", tokens[i], " at ",
          size() + static_cast<int64_t>(i), " is outside the vocabulary of ", vocab_);
    std::memcpy(bytes.data() + i * static_cast<size_t>(width_), &tokens[i], static_cast<size_t>(width_));
  }
  file_.write(bytes);
  starts_.push_back(starts_.back() + tokens.size());
}

void TokenWriter::complete() {
  const int64_t token_bytes = size() * width_;
  file_.write(std::string(static_cast<size_t>(padded(token_bytes) - token_bytes), '\0'));
  file_.write({reinterpret_cast<const char*>(starts_.data()), 8 * starts_.size()});
  const uint32_t width = static_cast<uint32_t>(width_), vocab = static_cast<uint32_t>(vocab_);
  const uint64_t tokens = starts_.back(), documents = starts_.size() - 1;
  std::string header(kMagic);
  for (const auto& [field, bytes] :
       {std::pair<const void*, size_t>{&width, 4}, {&vocab, 4}, {&tokens, 8}, {&documents, 8}})
    header.append(static_cast<const char*>(field), bytes);
  file_.overwrite(header);
  file_.complete();
  completed_ = true;
}

void TokenWriter::finish() {
  if (!completed_) complete();
  file_.finish();
}

}  // namespace flatshard
