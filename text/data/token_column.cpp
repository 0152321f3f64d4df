#include "text/data/token_column.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr std::string_view kMagic = "FLATCOL1";
constexpr int64_t kHeaderBytes = 24;

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

uint64_t number(const char* data) {
  uint64_t value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

}  // namespace

TokenColumn::TokenColumn(const std::string& path, int64_t tokens, const std::string& identity,
                         const std::string& remedy)
    : file_(path) {
  std::array<char, kHeaderBytes> header{};
  const int64_t bytes = check_content(file_, remedy).bytes;
  file_.read(0, std::min(bytes, kHeaderBytes), header.data());
  check(bytes >= kHeaderBytes && std::string_view(header.data(), kMagic.size()) == kMagic, path,
        ": is not a column of token values: ", remedy);
  const uint64_t count = number(header.data() + 8), length = number(header.data() + 16);
  // These checks come first, so that the sum below cannot overflow.
  const auto most = static_cast<uint64_t>(bytes);
  check(count <= most && length <= most &&
            bytes == kHeaderBytes + padded(static_cast<int64_t>(length)) + 4 * static_cast<int64_t>(count),
        path, ": has ", bytes, " bytes, which are not an identity of ", length, " bytes and ", count,
        " values: it is cut off or damaged: ", remedy);
  std::string made(length, '\0');
  file_.read(kHeaderBytes, static_cast<int64_t>(length), made.data());
  check(count == static_cast<uint64_t>(tokens) && made == identity, path,
        ": was made for other tokens or weights: for ", count, " tokens of \"", made, "\", must be for ",
        tokens, " of \"", identity, "\": ", remedy);
  values_at_ = kHeaderBytes + padded(static_cast<int64_t>(length));
}

void TokenColumn::read(int64_t begin, std::span<float> values) const {
  file_.check_size();
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  file_.read(values_at_ + kBytes * begin, kBytes * std::ssize(values), values.data());
}

std::string identity_of_column(const std::string& path) {
  const InputFile file(path);
  std::array<char, kHeaderBytes> header{};
  file.read(0, std::min(file.size(), kHeaderBytes), header.data());
  if (std::string_view(header.data(), kMagic.size()) != kMagic) return "";
  const uint64_t length = number(header.data() + 16);
  if (length > static_cast<uint64_t>(file.size() - kHeaderBytes)) return "";
  std::string identity(length, '\0');
  file.read(kHeaderBytes, static_cast<int64_t>(length), identity.data());
  return identity;
}

std::unique_ptr<CheckedNewFile> complete_token_column(const std::string& path, const std::string& identity,
                                                      std::span<const float> values) {
  auto file = std::make_unique<CheckedNewFile>(path);
  std::string header(kMagic);
  for (const uint64_t field : {uint64_t{values.size()}, uint64_t{identity.size()}})
    header.append(reinterpret_cast<const char*>(&field), sizeof field);
  header += identity;
  header.resize(static_cast<size_t>(padded(std::ssize(header))));
  file->write(header);
  file->write({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  file->complete();
  return file;
}

void write_token_column(const std::string& path, const std::string& identity, std::span<const float> values) {
  complete_token_column(path, identity, values)->finish();
}

}  // namespace flatshard
