#include "text/data/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/json.h"
#include "text/data/kept_files.h"

namespace flatshard {
namespace {

constexpr char kMagic[] = "FLATTOK2", kMagicOfImages[] = "FLATTOK3";
constexpr int64_t kMagicBytes = sizeof kMagic - 1, kHeaderBytes = 48;
constexpr int64_t kStartsInBlock = 512;
constexpr uint64_t kMostManifestBytes = uint64_t{1} << 30;

template <class T>
T number(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

void check_vocab(const std::string& path, int64_t vocab) {
  check(vocab > 0 && vocab <= INT32_MAX, path, ": the vocabulary is ", vocab, " tokens, must be from 1 to ",
        INT32_MAX);
}

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }
int64_t bytes_of_mask(int64_t tokens) { return padded((tokens + 7) / 8); }

}  // namespace

bool is_token_file(const std::string& path) {
  constexpr int64_t kCommon = kMagicBytes - 1;  // the magic without its version
  const InputFile file(path);
  std::array<char, kCommon> begin{};
  file.read(0, std::min(kCommon, file.size()), begin.data());
  return std::memcmp(begin.data(), kMagic, kCommon) == 0;
}

std::string manifest_of(const std::string& path) {
  const InputFile file(path);
  std::array<std::byte, kHeaderBytes> header{};
  file.read(0, std::min(file.size(), kHeaderBytes), header.data());
  const uint64_t bytes = number<uint64_t>(header.data() + 40);
  const int64_t end = content_bytes(file);
  if (!is_token_file(path) || bytes > std::min(kMostManifestBytes, static_cast<uint64_t>(end))) return "";
  std::string manifest(bytes, '\0');
  file.read(end - static_cast<int64_t>(bytes), static_cast<int64_t>(bytes), manifest.data());
  return manifest;
}

TokenFile::TokenFile(const std::string& path, int64_t most_documents) : file_(path) {
  std::byte header[kHeaderBytes] = {};
  file_.read(0, std::min(file_.size(), kHeaderBytes), header);
  const bool begins = std::memcmp(header, kMagic, kMagicBytes - 1) == 0,
             with_images = std::memcmp(header, kMagicOfImages, kMagicBytes) == 0,
             is_ours = with_images || std::memcmp(header, kMagic, kMagicBytes) == 0;
  check(!begins || is_ours, path, ": is a token file of another version: ", remedy_of(path));
  const CheckedContent content = check_content(file_, remedy_of(path));
  const int64_t bytes = content.bytes;
  has_sums_ = content.has_sums;
  check(is_ours && bytes >= kHeaderBytes, path, ": is not a token file: make one with prepare");
  width_ = number<uint32_t>(header + 8);
  vocab_ = number<uint32_t>(header + 12);
  const uint64_t tokens = number<uint64_t>(header + 16), documents = number<uint64_t>(header + 24);
  const uint64_t mask = number<uint64_t>(header + 32), manifest = number<uint64_t>(header + 40);
  check(width_ == 2 || width_ == 4, path, ": ", width_, " bytes per token, must be 2 or 4");
  check_vocab(path, vocab_);
  // These checks come first, so that the sums below cannot overflow.
  const auto most = static_cast<uint64_t>(bytes);
  check(tokens <= most && documents < most && mask <= most && manifest <= most, path, ": its header says ",
        tokens, " tokens in ", documents, " documents, but the file has only ", bytes,
        " bytes: it is cut off or damaged");
  tokens_ = whole_tokens_ = static_cast<int64_t>(tokens);
  documents_ = static_cast<int64_t>(documents);
  mask_bytes_ = static_cast<int64_t>(mask);
  check(mask_bytes_ == 0 || mask_bytes_ == bytes_of_mask(tokens_), path, ": has a mask of ", mask_bytes_,
        " bytes, must have ", bytes_of_mask(tokens_), ": it is damaged");
  check(manifest <= kMostManifestBytes, path, ": has a manifest of ", manifest, " bytes, must be at most ",
        kMostManifestBytes);
  starts_at_ = kHeaderBytes + padded(tokens_ * width_);
  mask_at_ = starts_at_ + 8 * (documents_ + 1);
  const int64_t expected = mask_at_ + mask_bytes_ + static_cast<int64_t>(manifest);
  check(with_images ? bytes > expected : bytes == expected, path, ": has ", bytes, " bytes, must have ",
        with_images ? "more than " : "", expected, ": it is cut off or damaged");
  const int64_t manifest_at = bytes - static_cast<int64_t>(manifest);
  manifest_.resize(manifest);
  file_.read(manifest_at, static_cast<int64_t>(manifest), manifest_.data());
  read_starts();
  if (with_images) read_images(mask_at_ + mask_bytes_, manifest_at);
  if (most_documents > 0 && most_documents < documents_) keep_first(most_documents);
}

template <class Take>
void TokenFile::each_block_of_starts(int64_t block, Take&& take) const {
  std::array<uint64_t, kStartsInBlock> starts;
  for (int64_t first = block * kStartsInBlock; first <= documents_; first += kStartsInBlock) {
    const int64_t count = std::min(kStartsInBlock, documents_ + 1 - first);
    file_.read(starts_at_ + 8 * first, 8 * count, starts.data());
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

void TokenFile::read_images(int64_t begin, int64_t end) {
  const auto manifest = parse_json_or_discard<nlohmann::json>(manifest_);
  check(manifest.is_object() && manifest.contains("images"), path(),
        ": is damaged: it has images, but does not say how they are read");
  image_input_ =
      with_place(path() + ": is damaged", [&] { return parse_image_input(json_text(manifest["images"])); });
  images_.emplace(file_, begin, end, tokens_);
}

void TokenFile::keep_first(int64_t documents) {
  uint64_t end = 0;
  file_.read(starts_at_ + 8 * documents, 8, &end);
  left_out_ = documents_ - documents;
  documents_ = documents;
  tokens_ = static_cast<int64_t>(end);
  first_of_block_.resize(static_cast<size_t>(documents / kStartsInBlock + 1));
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

void TokenFile::read_mask(int64_t begin, std::span<uint8_t> trained) const {
  if (!has_mask()) {
    std::fill(trained.begin(), trained.end(), uint8_t{1});
    return;
  }
  const int64_t first = begin / 8, end = (begin + std::ssize(trained) + 7) / 8;
  std::vector<uint8_t> bits(static_cast<size_t>(end - first));
  file_.read(mask_at_ + first, end - first, bits.data());
  for (size_t i = 0; i < trained.size(); ++i) {
    const size_t bit = static_cast<size_t>(begin % 8) + i;
    trained[i] = bits[bit / 8] >> (bit % 8) & 1;
  }
}

void TokenFile::each_document(const std::function<void(int64_t begin, int64_t length)>& take) const {
  int64_t begin = -1;
  each_block_of_starts(0, [&](std::span<const uint64_t> starts) {
    for (const uint64_t start : starts) {
      const int64_t end = static_cast<int64_t>(start);
      if (begin >= 0) take(begin, end - begin);
      begin = end;
    }
    return true;
  });
}

std::string TokenFile::note_on_sums() const {
  return has_sums_
             ? ""
             : str(path(), ": has no checksums, since an earlier version made it, so damage goes unnoticed: ",
                   remedy_of(path()));
}

bool have_same_documents(const TokenFile& a, const TokenFile& b) {
  if (a.size() != b.size() || a.vocab() != b.vocab() || a.document_count() != b.document_count())
    return false;
  constexpr int64_t kTokens = 1 << 16;  // number of tokens compared at a time
  std::vector<int32_t> of_a, of_b;
  std::vector<uint8_t> trained_in_a, trained_in_b;
  for (int64_t begin = 0; begin < a.size(); begin += kTokens) {
    const int64_t end = std::min(begin + kTokens, a.size());
    for (std::vector<int32_t>* of : {&of_a, &of_b}) of->resize(static_cast<size_t>(end - begin));
    for (std::vector<uint8_t>* of : {&trained_in_a, &trained_in_b})
      of->resize(static_cast<size_t>(end - begin));
    a.read(begin, of_a);
    b.read(begin, of_b);
    a.read_mask(begin, trained_in_a);
    b.read_mask(begin, trained_in_b);
    if (of_a != of_b || trained_in_a != trained_in_b || a.starts_in(begin, end) != b.starts_in(begin, end))
      return false;
  }
  return true;
}

TokenWriter::TokenWriter(const std::string& path, int64_t vocab)
    : path_(path), vocab_(vocab), width_(vocab <= 65536 ? 2 : 4), images_(path), columns_(path), file_(path) {
  check_vocab(path, vocab);
  file_.write(std::string(kHeaderBytes, '\0'));
}

void TokenWriter::add_document(std::span<const int32_t> tokens, std::span<const uint8_t> trained,
                               std::span<const DocumentImage> images, const TokenValues& values) {
  check(trained.empty() || trained.size() == tokens.size(), path_, ": ", trained.size(), " mask values for ",
        tokens.size(), " tokens");
  std::string bytes(tokens.size() * static_cast<size_t>(width_), '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    check(tokens[i] >= 0 && tokens[i] < vocab_, path_, ": token ", tokens[i], " at ",
          size() + static_cast<int64_t>(i), " is outside the vocabulary of ", vocab_);
    std::memcpy(bytes.data() + i * static_cast<size_t>(width_), &tokens[i], static_cast<size_t>(width_));
  }
  file_.write(bytes);
  const auto begin = static_cast<size_t>(size());
  for (const DocumentImage& image : images) images_.add(size(), image);
  columns_.add(tokens, trained, values);
  starts_.push_back(starts_.back() + tokens.size());
  const auto masked = std::count(trained.begin(), trained.end(), uint8_t{0});
  trained_ += std::ssize(tokens) - masked;
  if (masked == 0 && mask_.empty()) return;
  if (mask_.empty()) mask_.assign(begin / 8 + 1, 0xff);
  mask_.resize(static_cast<size_t>(bytes_of_mask(size())));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t bit = begin + i;
    const bool is_trained = trained.empty() || trained[i] != 0;
    const auto value = static_cast<uint8_t>(1u << (bit % 8));
    mask_[bit / 8] = static_cast<uint8_t>(is_trained ? mask_[bit / 8] | value : mask_[bit / 8] & ~value);
  }
}

void TokenWriter::complete() {
  manifest_ = columns_.added_to(manifest_);
  const int64_t token_bytes = size() * width_;
  file_.write(std::string(static_cast<size_t>(padded(token_bytes) - token_bytes), '\0'));
  file_.write({reinterpret_cast<const char*>(starts_.data()), 8 * starts_.size()});
  for (size_t bit = static_cast<size_t>(size()); bit < 8 * mask_.size(); ++bit)
    mask_[bit / 8] = static_cast<uint8_t>(mask_[bit / 8] & ~(1u << (bit % 8)));
  file_.write({reinterpret_cast<const char*>(mask_.data()), mask_.size()});
  if (!images_.empty()) file_.write(images_.bytes());
  file_.write(manifest_);
  const uint32_t width = static_cast<uint32_t>(width_), vocab = static_cast<uint32_t>(vocab_);
  const uint64_t tokens = starts_.back(), documents = starts_.size() - 1;
  const uint64_t mask = mask_.size(), manifest = manifest_.size();
  std::string header(images_.empty() ? kMagic : kMagicOfImages);
  for (const auto& [field, bytes] : {std::pair<const void*, size_t>{&width, 4},
                                     {&vocab, 4},
                                     {&tokens, 8},
                                     {&documents, 8},
                                     {&mask, 8},
                                     {&manifest, 8}})
    header.append(static_cast<const char*>(field), bytes);
  file_.overwrite(header);
  file_.complete();
  images_.complete();
  columns_.complete();
  completed_ = true;
}

void TokenWriter::finish() {
  if (!completed_) complete();
  images_.finish();
  columns_.finish();
  file_.finish();
}

}  // namespace flatshard
