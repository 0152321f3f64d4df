#include "hub/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "runtime/text.h"
#include "runtime/utf8.h"

namespace flatshard {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[] = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
constexpr int64_t kMostHeaderBytes = int64_t{512} << 20;
constexpr int64_t kMostDimensions = 4;

// The types of metadata values, by their numbers in the file.
enum Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// Reads the header from front to back, through a buffer.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file) {}

  int64_t position() const { return buffer_begin_ + static_cast<int64_t>(at_); }
  // Sets the name of the item being read, for errors.
  void at(std::string what) { what_ = std::move(what); }
  const std::string& what() const { return what_; }

  template <class T>
  T number() {
    T value;
    take(sizeof value, &value);
    return value;
  }
  std::string text() {
    const int64_t length = count(1);
    std::string text(static_cast<size_t>(length), '\0');
    take(length, text.data());
    return text;
  }
  // Reads a number of items that have at least this many bytes each. Throws an Error if they do not fit into
  // the file.
  int64_t count(int64_t bytes_each) {
    const auto n = number<uint64_t>();
    const int64_t left = std::min(file_.size(), kMostHeaderBytes) - position();
    check(n <= static_cast<uint64_t>(std::max<int64_t>(left, 0) / bytes_each), file_.path(), ": ", what_,
          " has a length of ", n, ", but only ", std::max<int64_t>(left, 0),
          " bytes follow: the file is damaged or incomplete: download it again");
    return static_cast<int64_t>(n);
  }

 private:
  void take(int64_t bytes, void* to) {
    auto* out = static_cast<char*>(to);
    while (bytes > 0) {
      if (at_ == buffer_.size()) refill();
      const auto n = std::min<int64_t>(bytes, std::ssize(buffer_) - static_cast<int64_t>(at_));
      std::memcpy(out, buffer_.data() + at_, static_cast<size_t>(n));
      at_ += static_cast<size_t>(n);
      out += n;
      bytes -= n;
    }
  }
  void refill() {
    constexpr int64_t kBuffer = 1 << 20;
    buffer_begin_ = position();
    check(buffer_begin_ < file_.size(), file_.path(), ": ends within ", what_,
          ": the file is incomplete: download it again");
    check(buffer_begin_ < kMostHeaderBytes, file_.path(), ": its metadata have more than ",
          human_bytes(kMostHeaderBytes));
    buffer_.resize(static_cast<size_t>(std::min(kBuffer, file_.size() - buffer_begin_)));
    file_.read(buffer_begin_, std::ssize(buffer_), buffer_.data());
    at_ = 0;
  }

  const InputFile& file_;
  std::string what_ = "the header", buffer_;
  int64_t buffer_begin_ = 0;
  size_t at_ = 0;
};

// Reads a whole number; one above 2^63 - 1 becomes that.
template <class T>
int64_t read_whole(HeaderReader& in) {
  const T value = in.number<T>();
  if constexpr (std::is_same_v<T, uint64_t>)
    return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
  else
    return value;
}

int64_t read_flag(HeaderReader& in) { return in.number<uint8_t>() != 0; }

// The kinds by their numbers in the file: the fewest bytes of a value, and its reader if it is a whole
// number.
struct KindRow {
  int64_t bytes;
  int64_t (*read_whole)(HeaderReader& in) = nullptr;
};
constexpr KindRow kKinds[] = {{1, read_whole<uint8_t>},
                              {1, read_whole<int8_t>},
                              {2, read_whole<uint16_t>},
                              {2, read_whole<int16_t>},
                              {4, read_whole<uint32_t>},
                              {4, read_whole<int32_t>},
                              {4},
                              {1, read_flag},
                              {8},
                              {12},
                              {8, read_whole<uint64_t>},
                              {8, read_whole<int64_t>},
                              {8}};

double read_real(HeaderReader& in, uint32_t kind) {
  return kind == f32 ? static_cast<double>(in.number<float>()) : in.number<double>();
}

GgufValue read_array(HeaderReader& in, const std::string& path) {
  const auto kind = in.number<uint32_t>();
  check(kind < std::size(kKinds) && kind != array, path, ": ", in.what(), " is an array of type ", kind,
        ", which is not supported");
  const int64_t n = in.count(kKinds[kind].bytes);
  const auto fill = [&](auto values, const auto& read) -> GgufValue {
    values.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) values.push_back(read());
    return values;
  };
  if (kind == string) return fill(std::vector<std::string>(), [&] { return in.text(); });
  if (const auto read = kKinds[kind].read_whole)
    return fill(std::vector<int64_t>(), [&] { return read(in); });
  return fill(std::vector<double>(), [&] { return read_real(in, kind); });
}

GgufValue read_value(HeaderReader& in, const std::string& path) {
  const auto kind = in.number<uint32_t>();
  if (kind == string) return in.text();
  if (kind == array) return read_array(in, path);
  if (kind == boolean) return read_flag(in) != 0;
  if (kind == f32 || kind == f64) return read_real(in, kind);
  check(kind < std::size(kKinds), path, ": ", in.what(), " has the unknown type ", kind);
  return kKinds[kind].read_whole(in);
}

int64_t aligned(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

bool is_gguf(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const InputFile file(path);
  char start[4];
  if (file.size() < std::ssize(start)) return false;
  file.read(0, std::ssize(start), start);
  return std::string_view(start, sizeof start) == kMagic;
}

int64_t GgufTensor::values() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

GgufFile::GgufFile(const std::string& path) : file_(path) { read_header(); }

void GgufFile::read_header() {
  HeaderReader in(file_);
  char magic[4];
  for (char& c : magic) c = in.number<char>();
  check(std::string_view(magic, sizeof magic) == kMagic, path(), ": is no GGUF file");
  const auto version = in.number<uint32_t>();
  check(version == 2 || version == kVersion, path(), ": is GGUF version ", version,
        ", must be 2 or 3, and little-endian");
  const int64_t tensors = in.count(24), keys = in.count(13);
  for (int64_t i = 0; i < keys; ++i) {
    in.at(str("metadata entry ", i));
    const std::string key = in.text();
    check(valid_utf8_prefix(key) == key.size(), path(), ": the name of metadata entry ", i, " is not UTF-8");
    in.at(printable(key));
    check(metadata_.emplace(key, read_value(in, path())).second, path(), ": ", printable(key),
          " is there twice");
  }
  const int64_t* own = find_value<int64_t>("general.alignment");
  const int64_t alignment = own ? *own : kAlignment;
  check(alignment > 0 && alignment <= (1 << 20) && std::has_single_bit(static_cast<uint64_t>(alignment)),
        path(), ": general.alignment is ", alignment, ", must be a power of two");
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < tensors; ++i) {
    in.at(str("tensor ", i));
    GgufTensor tensor{.name = in.text(), .type = 0, .shape = {}};
    check(valid_utf8_prefix(tensor.name) == tensor.name.size(), path(), ": the name of tensor ", i,
          " is not UTF-8");
    in.at(printable(tensor.name));
    const auto dimensions = in.number<uint32_t>();
    check(dimensions <= kMostDimensions, path(), ": ", in.what(), " has ", dimensions,
          " dimensions, must have at most ", kMostDimensions);
    for (uint32_t d = 0; d < dimensions; ++d) tensor.shape.insert(tensor.shape.begin(), in.number<int64_t>());
    tensor.type = in.number<uint32_t>();
    offsets.push_back(in.number<int64_t>());
    check(by_name_.emplace(tensor.name, tensors_.size()).second, path(), ": ", in.what(), " is there twice");
    tensors_.push_back(std::move(tensor));
  }
  const int64_t data = aligned(in.position(), alignment);
  for (size_t i = 0; i < tensors_.size(); ++i) check_tensor(tensors_[i], offsets[i], data);
}

void GgufFile::check_tensor(GgufTensor& tensor, int64_t offset, int64_t data) const {
  const std::string name = printable(tensor.name);
  int64_t values = 1;
  for (const int64_t extent : tensor.shape) {
    check(extent > 0 && extent <= std::numeric_limits<int64_t>::max() / 8 / values, path(), ": ", name,
          " has an impossible size");
    values *= extent;
  }
  check(offset >= 0 && offset <= file_.size() - data, path(), ": ", name, " begins at byte ", offset,
        " of the tensors, but the file has only ", std::max<int64_t>(file_.size() - data, 0),
        " there: it is incomplete: download it again");
  tensor.begin = data + offset;
  const std::optional<GgmlType> type = ggml_type_of(tensor.type);
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  check(!type || row % block_values(*type) == 0, path(), ": ", name, " has rows of ", row,
        " values, must be a multiple of ", type ? block_values(*type) : 1, " for ",
        ggml_type_name(tensor.type));
  // A value of an unknown type is assumed to have at least one bit.
  const int64_t least = type ? ggml_bytes(*type, values) : values / 8, left = file_.size() - tensor.begin;
  check(least <= left, path(), ": ends within ", name, ", whose ", values, " values of ",
        ggml_type_name(tensor.type), " have at least ", least, " bytes, but only ", left,
        " follow: the file is damaged or incomplete: download it again");
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::read(const GgufTensor& tensor, int64_t first, int64_t count, float* to) const {
  const std::optional<GgmlType> type = ggml_type_of(tensor.type);
  check(type.has_value(), path(), ": ", printable(tensor.name), " is ", ggml_type_name(tensor.type),
        ", must be F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K or Q6_K: download the model in one of these types");
  if (count == 0) return;
  const int64_t block = block_values(*type), begin = first / block, end = (first + count - 1) / block + 1;
  std::vector<std::byte> blocks(static_cast<size_t>(ggml_bytes(*type, (end - begin) * block)));
  file_.read(tensor.begin + ggml_bytes(*type, begin * block), std::ssize(blocks), blocks.data());
  if (first % block == 0 && count % block == 0) return decode_ggml(*type, blocks, to);
  std::vector<float> values(static_cast<size_t>((end - begin) * block));
  decode_ggml(*type, blocks, values.data());
  std::copy_n(values.begin() + (first - begin * block), count, to);
}

int64_t GgufKeys::size(const char* key, std::optional<int64_t> absent) const {
  const std::string name = prefix_ + key;
  const auto found = file_.metadata().find(name);
  if (found == file_.metadata().end() && absent) return *absent;
  const auto* each =
      found == file_.metadata().end() ? nullptr : std::get_if<std::vector<int64_t>>(&found->second);
  const bool equal = each && !each->empty() &&
                     std::all_of(each->begin(), each->end(), [&](int64_t n) { return n == each->front(); });
  const int64_t value = equal ? each->front() : file_.value<int64_t>(name);
  check(value >= 0 && value <= INT32_MAX, file_.path(), ": ", name, " is ", value,
        ", must be a size of at most 32 bits");
  return value;
}

double GgufKeys::real(const char* key, double absent) const {
  const double* value = file_.find_value<double>(prefix_ + key);
  return value ? shortest_decimal(*value) : absent;
}

bool GgufKeys::flag(const char* key, bool absent) const {
  const bool* value = file_.find_value<bool>(prefix_ + key);
  return value ? *value : absent;
}

std::string GgufKeys::text(const char* key) const {
  const std::string* value = file_.find_value<std::string>(prefix_ + key);
  return value ? *value : "";
}

std::vector<int64_t> GgufKeys::list(const char* key) const {
  const auto* value = file_.find_value<std::vector<int64_t>>(prefix_ + key);
  return value ? *value : std::vector<int64_t>{};
}

double shortest_decimal(double value) {
  for (int digits = 1; digits < 9; ++digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    const double decimal = std::strtod(text, nullptr);
    if (static_cast<float>(decimal) == static_cast<float>(value)) return decimal;
  }
  return value;
}

std::string gguf_types(const GgufFile& file) {
  std::map<uint32_t, int64_t> counts;
  for (const GgufTensor& tensor : file.tensors()) ++counts[tensor.type];
  std::vector<std::pair<uint32_t, int64_t>> types(counts.begin(), counts.end());
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [type, count] : types)
    text += str(text.empty() ? "" : ", ", ggml_type_name(type), types.size() > 1 ? str(" x", count) : "");
  return text;
}

template <class T>
void GgufWriter::append(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void GgufWriter::append(std::string& to, std::string_view text) {
  append(to, static_cast<uint64_t>(text.size()));
  to.append(text);
}

void GgufWriter::put_key(const std::string& key, uint32_t type) {
  ++keys_;
  append(metadata_, std::string_view(key));
  append(metadata_, type);
}

void GgufWriter::put(const std::string& key, std::string_view value) {
  put_key(key, string);
  append(metadata_, value);
}

void GgufWriter::put(const std::string& key, bool value) {
  put_key(key, boolean);
  append(metadata_, static_cast<uint8_t>(value));
}

void GgufWriter::put(const std::string& key, double value) {
  put_key(key, f32);
  append(metadata_, static_cast<float>(value));
}

void GgufWriter::put_size(const std::string& key, int64_t value) {
  check(value >= 0 && value <= std::numeric_limits<uint32_t>::max(), key, " is ", value,
        ", must fit 32 bits in a GGUF file");
  put_key(key, u32);
  append(metadata_, static_cast<uint32_t>(value));
}

template <class T>
void GgufWriter::put_array(const std::string& key, uint32_t type, const T& values) {
  put_key(key, array);
  append(metadata_, type);
  append(metadata_, static_cast<uint64_t>(values.size()));
  for (const auto& value : values) {
    if constexpr (std::is_same_v<T, std::vector<std::string>>)
      append(metadata_, std::string_view(value));
    else if constexpr (std::is_same_v<T, std::vector<bool>>)
      append(metadata_, static_cast<uint8_t>(value));
    else
      append(metadata_, value);
  }
}

void GgufWriter::put(const std::string& key, const std::vector<std::string>& values) {
  put_array(key, string, values);
}
void GgufWriter::put(const std::string& key, const std::vector<float>& values) {
  put_array(key, f32, values);
}
void GgufWriter::put(const std::string& key, const std::vector<int32_t>& values) {
  put_array(key, i32, values);
}
void GgufWriter::put(const std::string& key, const std::vector<bool>& values) {
  put_array(key, boolean, values);
}

void GgufWriter::add_tensor(const std::string& name, GgmlType type, const std::vector<int64_t>& shape) {
  append(infos_, std::string_view(name));
  append(infos_, static_cast<uint32_t>(shape.size()));
  int64_t values = 1;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    append(infos_, *extent);
    values *= *extent;
  }
  append(infos_, ggml_id_of(type));
  append(infos_, next_offset_);
  sizes_.push_back(ggml_bytes(type, values));
  next_offset_ += aligned(sizes_.back(), kAlignment);
}

void GgufWriter::begin(const std::string& path) {
  std::string header(kMagic);
  append(header, kVersion);
  append(header, std::ssize(sizes_));
  append(header, keys_);
  header += metadata_;
  header += infos_;
  header.resize(static_cast<size_t>(aligned(std::ssize(header), kAlignment)));
  file_ = std::make_unique<NewFile>(path);
  file_->write(header);
}

void GgufWriter::write(std::span<const std::byte> blocks) {
  check(current_ < sizes_.size() && written_ + std::ssize(blocks) <= sizes_[current_],
        "a GGUF tensor gets more bytes than it was declared with");
  file_->write({reinterpret_cast<const char*>(blocks.data()), blocks.size()});
  written_ += std::ssize(blocks);
  if (written_ < sizes_[current_]) return;
  file_->write(std::string(static_cast<size_t>(aligned(written_, kAlignment) - written_), '\0'));
  ++current_;
  written_ = 0;
}

void GgufWriter::finish() {
  check(current_ == sizes_.size(), "a GGUF tensor gets fewer bytes than it was declared with");
  file_->complete();
  file_->finish();
}

}  // namespace flatshard
