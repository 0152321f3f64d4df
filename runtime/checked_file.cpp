#include "runtime/checked_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ios>
#include <span>

#include "runtime/check.h"
#include "runtime/crc64.h"
#include "runtime/file_sums.h"

namespace flatshard {
namespace {

constexpr std::string_view kMagic = "FLATSUM1";
constexpr int64_t kEndBytes = 24;  // size of End, which follows the sums

int64_t blocks_of(int64_t bytes) { return (bytes + kSumBlockBytes - 1) / kSumBlockBytes; }

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct End {
  std::array<uint64_t, 2> numbers{};  // size of the content in bytes, and the CRC
  std::array<char, kMagic.size()> magic{};
};
static_assert(sizeof(End) == kEndBytes);

// Reads the last bytes of the file; returns whether they are the end of a file with checksums.
bool read_end(const InputFile& file, End& end) {
  if (file.size() < kEndBytes) return false;
  file.read(file.size() - kEndBytes, kEndBytes, &end);
  return std::string_view(end.magic.data(), end.magic.size()) == kMagic;
}

// The sum of the content's last block if the content ends within it. The file's sum of that block also covers
// the checksums that follow.
uint64_t sum_of_rest(const InputFile& file, int64_t begin, int64_t end) {
  std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
  file.read(begin, end - begin, bytes.data());
  return crc64(bytes);
}

}  // namespace

int64_t content_bytes(const InputFile& file) {
  End end;
  if (!read_end(file, end)) return file.size();
  return static_cast<int64_t>(std::min(end.numbers[0], static_cast<uint64_t>(file.size() - kEndBytes)));
}

CheckedContent check_content(const InputFile& file, const std::string& remedy) {
  End end;
  if (!read_end(file, end)) return {.bytes = file.size(), .has_sums = false};
  const int64_t bytes = content_bytes(file), blocks = blocks_of(bytes);
  std::vector<uint64_t> sums(static_cast<size_t>(blocks) + 1);
  const bool fits = bytes + 8 * blocks + kEndBytes == file.size();
  if (fits) file.read(bytes, 8 * std::ssize(sums), sums.data());
  check(fits && crc64(std::as_bytes(std::span(sums))) == end.numbers[1], file.path(),
        ": is damaged: the checksums at its end, from byte ", bytes, " on, do not fit: ", remedy);
  const FileSums found = sums_of(file);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kSumBlockBytes, last = std::min(first + kSumBlockBytes, bytes);
    const auto at = static_cast<size_t>(block);
    const uint64_t sum = last - first == kSumBlockBytes ? found.at(at) : sum_of_rest(file, first, last);
    check(sum == sums[at], file.path(), ": is damaged between byte ", first, " and byte ", last,
          ": their CRC is ", std::hex, sum, ", must be ", sums[at], ": ", remedy);
  }
  return {.bytes = bytes, .has_sums = true};
}

void CheckedNewFile::write(std::string_view bytes) {
  int64_t at = file_.size();
  file_.write(bytes);
  while (!bytes.empty()) {
    const int64_t left = kSumBlockBytes - at % kSumBlockBytes;
    const std::string_view part = bytes.substr(0, static_cast<size_t>(left));
    if (at % kSumBlockBytes == 0) sums_.push_back(0);
    sums_.back() = crc64_add(sums_.back(), as_bytes(part));
    at += std::ssize(part);
    bytes.remove_prefix(part.size());
  }
}

void CheckedNewFile::overwrite(std::string_view bytes) {
  const int64_t first_block = std::min(file_.size(), kSumBlockBytes);
  check(std::ssize(bytes) <= first_block, "only the first block of a file is overwritten");
  file_.overwrite(bytes);
  sums_.front() ^=
      crc64_carry(crc64_add(0, as_bytes(bytes)), static_cast<uint64_t>(first_block - std::ssize(bytes)));
}

void CheckedNewFile::complete() {
  const int64_t content = file_.size();
  for (size_t i = 0; i < sums_.size(); ++i)
    sums_[i] = crc64_finish(
        sums_[i],
        static_cast<uint64_t>(std::min(kSumBlockBytes, content - static_cast<int64_t>(i) * kSumBlockBytes)));
  std::vector<uint64_t> end = sums_;
  end.push_back(static_cast<uint64_t>(content));
  end.push_back(crc64(std::as_bytes(std::span(end))));
  file_.write({reinterpret_cast<const char*>(end.data()), 8 * end.size()});
  file_.write(kMagic);
  file_.complete();
}

}  // namespace flatshard
