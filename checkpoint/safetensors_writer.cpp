#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "checkpoint/safetensors.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr int64_t kWorthBeginning = int64_t{1} << 20;  // fewest bytes for which writeback is started early

// The order of dtypes in a file: widest first, in reverse of the format's own order.
int64_t rank_of(DType dtype) {
  constexpr DType kOrder[] = {DType::f32, DType::i32, DType::bf16, DType::f16, DType::u8};
  return std::find(std::begin(kOrder), std::end(kOrder), dtype) - std::begin(kOrder);
}

int64_t element_count(const SafetensorsSpec& spec) {
  int64_t elements = 1;
  for (const int64_t extent : spec.shape)
    check(extent >= 0 && !__builtin_mul_overflow(elements, extent, &elements), "safetensors: \"", spec.name,
          "\": an extent of ", extent, " is negative or overflows");
  return elements;
}

}  // namespace

SafetensorsLayout::SafetensorsLayout(std::vector<SafetensorsSpec> specs, const Metadata& metadata)
    : specs_(std::move(specs)), offsets_(specs_.size()), elements_(specs_.size()) {
  std::vector<size_t> order(specs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) { return std::pair(rank_of(specs_[i].dtype), specs_[i].name); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });

  SafetensorsHeader header{.metadata = metadata, .tensors = {}};
  std::set<std::string> names{"__metadata__"};
  int64_t at = 0;
  for (const size_t i : order) {
    const SafetensorsSpec& spec = specs_[i];
    check(names.insert(spec.name).second, "safetensors: the name \"", spec.name, "\" appears twice");
    elements_[i] = element_count(spec);
    offsets_[i] = at;
    int64_t bytes = 0;
    check(!__builtin_mul_overflow(elements_[i], size_of(spec.dtype), &bytes) &&
              !__builtin_add_overflow(at, bytes, &at),
          "safetensors: \"", spec.name, "\" makes the file longer than 2^63 bytes");
    header.tensors.push_back({.name = spec.name,
                              .dtype = safetensors_name(spec.dtype),
                              .shape = {spec.shape.begin(), spec.shape.end()},
                              .offsets = {static_cast<uint64_t>(offsets_[i]), static_cast<uint64_t>(at)}});
  }
  std::string text = to_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(text.size() <= SafetensorsFile::kMaxHeaderBytes, "safetensors: header too large: ", text.size(),
        " bytes, must be at most ", SafetensorsFile::kMaxHeaderBytes);
  const uint64_t length = text.size();
  header_.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  header_ += text;
  for (int64_t& offset : offsets_) offset += static_cast<int64_t>(header_.size());
  file_bytes_ = at + static_cast<int64_t>(header_.size());
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const SafetensorsLayout& layout, bool create,
                                     BlockSums* sums)
    : path_(path), layout_(layout), sums_(sums) {
  if (create) unlink(path.c_str());  // prevents a write through a link or pipe of that name
  file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0666);
  check(file_ >= 0, path, ": cannot write: ", std::strerror(errno));
  try {
    create ? create_file() : check_size();
  } catch (...) {
    close(file_);
    throw;
  }
}

void SafetensorsWriter::create_file() {
  const bool sized = ftruncate(file_, layout_.file_bytes()) == 0;
  check(sized, path_, ": cannot set its size to ", layout_.file_bytes(), " bytes: ", std::strerror(errno));
  write_bytes(0, layout_.header().data(), static_cast<int64_t>(layout_.header().size()));
}

void SafetensorsWriter::check_size() const {
  struct stat status {};
  const int64_t bytes = fstat(file_, &status) == 0 ? status.st_size : -1;
  check(bytes == layout_.file_bytes(), path_, ": has ", bytes, " bytes, must have ", layout_.file_bytes());
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ >= 0) close(file_);
}

void SafetensorsWriter::write(size_t index, int64_t first, const void* data, int64_t elements) {
  check(index < layout_.specs().size(), path_, ": tensor ", index, " is outside of a layout of ",
        layout_.specs().size());
  const SafetensorsSpec& spec = layout_.specs()[index];
  const int64_t all = layout_.elements(index);
  check(first >= 0 && elements >= 0 && first <= all && elements <= all - first, path_, ": \"", spec.name,
        "\": ", elements, " elements from ", first, " exceed its ", all);
  const int64_t size = size_of(spec.dtype);
  write_bytes(layout_.offset(index) + first * size, data, elements * size);
}

void SafetensorsWriter::write_bytes(int64_t offset, const void* data, int64_t bytes) {
  if (sums_) sums_->add(offset, data, bytes);
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(file_, at, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, path_, ": cannot write: ", std::strerror(errno));
    // Starts writeback now, so that fsync has less to wait for. This is only a hint: finish() makes the data
    // durable.
    if (written >= kWorthBeginning) sync_file_range(file_, offset, written, SYNC_FILE_RANGE_WRITE);
    at += written;
    offset += written;
    bytes -= written;
  }
}

void SafetensorsWriter::finish() {
  const bool synced = fsync(file_) == 0;
  check(synced, path_, ": cannot write: ", std::strerror(errno));
  const bool closed = close(std::exchange(file_, -1)) == 0;
  check(closed, path_, ": cannot write: ", std::strerror(errno));
}

}  // namespace flatshard
