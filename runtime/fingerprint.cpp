#include "runtime/fingerprint.h"

#include <algorithm>
#include <memory>

#include "runtime/check.h"
#include "runtime/input_file.h"
#include "runtime/sha256.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr int64_t kBlocks = 64, kBlockBytes = int64_t{1} << 16;
constexpr size_t kHexDigits = 16;

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
  const Concatenation all(paths);
  Sha256 sha;
  const auto add_number = [&](int64_t n) { sha.add(&n, sizeof(n)); };
  for (const int64_t begin : all.begins()) add_number(begin);
  add_number(all.size());
  std::string block(static_cast<size_t>(kBlockBytes), '\0');
  for (int64_t i = 0; i < kBlocks; ++i) {
    const int64_t spread = std::max<int64_t>(0, all.size() - kBlockBytes);
    const bool whole = all.size() <= kBlocks * kBlockBytes;
    const int64_t begin = whole ? i * kBlockBytes : spread / (kBlocks - 1) * i;
    const int64_t count = std::min(kBlockBytes, all.size() - begin);
    if (count <= 0) break;
    all.read(begin, count, block.data());
    sha.add(block.data(), static_cast<size_t>(count));
  }
  return str(with_commas(all.size()), " bytes with SHA-256 ", sha.hex().substr(0, kHexDigits));
}

}  // namespace flatshard
