#include "train/text/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr char kMagic[] = "FLATTOK1";
constexpr int64_t kHeaderBytes = 32;
constexpr int64_t kStartsInBlock = 512;

template <class T>
T number(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(path) {
  std::byte header[kHeaderBytes] = {};
  const int64_t bytes = file_.size();
  if (bytes >= kHeaderBytes) file_.read(0, kHeaderBytes, header);
  check(std::memcmp(header, kMagic, 8) == 0, path, ": is not a token file: make one with prepare");
  width_ = number<uint32_t>(header + 8);
  vocab_ = number<uint32_t>(header + 12);
  const uint64_t tokens = number<uint64_t>(header + 16), documents = number<uint64_t>(header + 24);
  check(width_ == 2 || width_ == 4, path, ": ", width_, " bytes per token, must be 2 or 4");
  // Checked against the file's size first, so that the sums below cannot overflow.
  check(tokens <= static_cast<uint64_t>(bytes) && documents < static_cast<uint64_t>(bytes), path,
        ": its header says ", tokens, " tokens in ", documents, " documents, but the file has only ", bytes,
        " bytes: it is cut off or damaged");
  tokens_ = static_cast<int64_t>(tokens);
  documents_ = static_cast<int64_t>(documents);
  const int64_t expected = kHeaderBytes + padded(tokens_ * width_) + 8 * (documents_ + 1);
  check(bytes == expected, path, ": has ", bytes, " bytes, must have ", expected,
        ": it is cut off or damaged");
  read_starts();
}

template <class Take>
void TokenFile::each_block_of_starts(int64_t block, Take&& take) const {
  const int64_t starts_at = kHeaderBytes + padded(tokens_ * width_);
  std::array<uint64_t, kStartsInBlock> starts;
  for (int64_t first = block * kStartsInBlock; first <= documents_; first += kStartsInBlock) {
    const int64_t count = std::min(kStartsInBlock, documents_ + 1 - first);
    file_.read(starts_at + 8 * first, 8 * count, starts.data());
    if (!take(std::span<const uint64_t>(starts.data(), static_cast<size_t>(count)))) return;
  }
}

void TokenFile::read_starts() {
  uint64_t last = 0;
  bool rising = true;
  each_block_of_starts(0, [&](std::span<const uint64_t> starts) {
    rising = starts.front() >= last && std::is_sorted(starts.begin(), starts.end());
    first_of_block_.push_back(starts.front());
    last = starts.back();
    return rising;
  });
  check(rising && first_of_block_.front() == 0 && last == static_cast<uint64_t>(tokens_), path(),
        ": is damaged: the document starts are not ascending from 0 to ", tokens_);
}

void TokenFile::read(int64_t begin, std::span<int32_t> tokens) const {
  file_.check_size();
  // Reads narrow tokens into the end of the buffer, then widens them in place from the front.
  const size_t width = static_cast<size_t>(width_);
  std::byte* const raw =
      reinterpret_cast<std::byte*>(tokens.data()) + tokens.size() * (sizeof(int32_t) - width);
  file_.read(kHeaderBytes + begin * width_, static_cast<int64_t>(tokens.size() * width), raw);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* const at = raw + i * width;
    const uint32_t token = width_ == 2 ? number<uint16_t>(at) : number<uint32_t>(at);
    check(token < static_cast<uint32_t>(vocab_), path(), ": token ", token, " at ",
          begin + static_cast<int64_t>(i), " is outside the vocabulary of ", vocab_);
    tokens[i] = static_cast<int32_t>(token);
  }
}

std::vector<uint64_t> TokenFile::starts_in(int64_t begin, int64_t end) const {
  const auto low = static_cast<uint64_t>(begin), high = static_cast<uint64_t>(end);
  const auto behind = std::lower_bound(first_of_block_.begin(), first_of_block_.end(), low);
  const int64_t block = std::max<int64_t>(0, behind - first_of_block_.begin() - 1);
  std::vector<uint64_t> found;
  each_block_of_starts(block, [&](std::span<const uint64_t> starts) {
    const auto first = std::lower_bound(starts.begin(), starts.end(), low);
    const auto last = std::lower_bound(first, starts.end(), high);
    found.insert(found.end(), first, last);
    return last == starts.end();
  });
  return found;
}

TokenWriter::TokenWriter(const std::string& path, int64_t vocab)
    : path_(path), vocab_(vocab), width_(vocab <= 65536 ? 2 : 4), file_(path) {
  check(vocab > 0 && vocab <= INT32_MAX, path_, ": the vocabulary is ", vocab, " tokens, must be from 1 to ",
        INT32_MAX);
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
