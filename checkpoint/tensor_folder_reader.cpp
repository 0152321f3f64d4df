#include <algorithm>
#include <cstring>

#include "checkpoint/tensor_folder.h"

namespace flatshard {
namespace {

// Bytes per read: few enough to be still in the core's cache when they are summed.
constexpr int64_t kPiece = int64_t{1} << 18;

}  // namespace

TensorFolderReader::TensorFolderReader(const TensorFolder& folder) : folder_(folder) {
  for (const auto& file : folder.files()) sums_.emplace(&file->input(), BlockSums(file->input().size()));
}

FileRange TensorFolderReader::range(const std::string& tensor, int64_t first, int64_t count) const {
  const FileRange& all = folder_.entries().at(tensor)->bytes;
  return {.file = all.file, .begin = all.begin + first, .size = count};
}

void TensorFolderReader::read(ReadStream& stream, const std::string& tensor, int64_t first, int64_t count,
                              void* to, bool sum) {
  const FileRange from = range(tensor, first, count);
  stream.read(from, [&](int64_t at, std::span<const std::byte> piece) {
    std::memcpy(static_cast<std::byte*>(to) + at, piece.data(), piece.size());
    if (sum) sums_.at(from.file).add(from.begin + at, piece.data(), std::ssize(piece));
  });
}

void TensorFolderReader::sum_rest() {
  std::vector<std::byte> piece(static_cast<size_t>(kPiece));
  for (const auto& file : folder_.files()) {
    const auto sum_between = [&](int64_t at, int64_t end) {
      for (int64_t n = 0; at < end; at += n) {
        n = std::min(kPiece, end - at);
        file->input().read(at, n, piece.data());
        sums(*file).add(at, piece.data(), n);
      }
    };
    int64_t at = 0;
    for (const SafetensorsEntry& entry : file->entries())
      if (folder_.has(entry)) {
        sum_between(at, entry.bytes.begin);
        at = entry.bytes.begin + entry.bytes.size;
      }
    sum_between(at, file->input().size());
  }
}

}  // namespace flatshard
