#include "runtime/fingerprint.h"

#include <algorithm>
#include <memory>

#include "runtime/check.h"
#include "runtime/hash_cache.h"
#include "runtime/input_file.h"
#include "runtime/sha256.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr int64_t kBlocks = 64, kBlockBytes = int64_t{1} << 16, kWholeBytes = kBlocks * kBlockBytes;
constexpr size_t kHexDigits = 16;
constexpr const char *kSha256 = "SHA-256", *kBlockHash = "block hash";

std::string text_of(int64_t bytes, const char* kind, const Sha256& sha) {
  return str(with_commas(bytes), " bytes with ", kind, ' ', sha.hex().substr(0, kHexDigits));
}

std::string hash_of(const FileSums& sums) {
  Sha256 sha;
  sha.add(sums.data(), sums.size() * sizeof(sums.front()));
  return sha.hex();
}

std::string hash_of(const InputFile& file) {
  const FileVersion version = version_of(file);
  if (const auto sums = known_sums(version)) return hash_of(*sums);
  if (const auto kept = HashCache().find(version)) return *kept;
  const FileSums sums = sum_blocks(file);
  if (version_of(file) == version) keep_hash(version, sums);
  return hash_of(sums);
}

// Several files as one range of bytes.
class Concatenation {
 public:
  explicit Concatenation(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      files_.push_back(std::make_unique<InputFile>(path));
      begins_.push_back(size_);
      size_ += files_.back()->size();
    }
  }

  int64_t size() const { return size_; }
  const std::vector<int64_t>& begins() const { return begins_; }

  void read(int64_t at, int64_t count, char* to) const {
    for (size_t i = 0; i < files_.size(); ++i) {
      const int64_t begin = std::max(at, begins_[i]);
      const int64_t end = std::min(at + count, begins_[i] + files_[i]->size());
      if (begin < end) files_[i]->read(begin - begins_[i], end - begin, to + (begin - at));
    }
  }

 private:
  std::vector<std::unique_ptr<InputFile>> files_;
  std::vector<int64_t> begins_;
  int64_t size_ = 0;
};

}  // namespace

std::string fingerprint(const std::vector<std::string>& paths) {
  int64_t bytes = 0;
  Sha256 sha;
  std::vector<std::unique_ptr<InputFile>> files;
  for (const std::string& path : paths)
    bytes += files.emplace_back(std::make_unique<InputFile>(path))->size();
  if (bytes <= kWholeBytes) return sampled_fingerprint(paths);
  for (const auto& file : files) {
    const std::string line = str(file->size(), ' ', hash_of(*file), '\n');
    sha.add(line.data(), line.size());
  }
  return text_of(bytes, kBlockHash, sha);
}

bool is_to_be_hashed(const std::string& path) {
  const InputFile file(path);
  return file.size() > kWholeBytes && !HashCache().find(version_of(file));
}

void keep_hash(const FileVersion& version, const FileSums& sums) {
  if (version.size > kWholeBytes) HashCache().add(version, hash_of(sums), HashCache::now());
}

std::string sampled_fingerprint(const std::vector<std::string>& paths) {
  const Concatenation all(paths);
  Sha256 sha;
  const auto add_number = [&](int64_t n) { sha.add(&n, sizeof(n)); };
  for (const int64_t begin : all.begins()) add_number(begin);
  add_number(all.size());
  std::string block(static_cast<size_t>(kBlockBytes), '\0');
  const bool whole = all.size() <= kWholeBytes;
  for (int64_t i = 0; i < kBlocks; ++i) {
    const int64_t spread = std::max<int64_t>(0, all.size() - kBlockBytes);
    const int64_t begin = whole ? i * kBlockBytes : spread / (kBlocks - 1) * i;
    const int64_t count = std::min(kBlockBytes, all.size() - begin);
    if (count <= 0) break;
    all.read(begin, count, block.data());
    sha.add(block.data(), static_cast<size_t>(count));
  }
  return text_of(all.size(), kSha256, sha);
}

std::string fingerprint_like(const std::string& recorded, const std::vector<std::string>& paths) {
  return recorded.find(kSha256) != recorded.npos ? sampled_fingerprint(paths) : fingerprint(paths);
}

}  // namespace flatshard
