#include "text/data/token_column.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/data/kept_files.h"
#include "text/data/rollout.h"
#include "text/data/token_file.h"

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

using Json = nlohmann::ordered_json;

constexpr size_t kIdentityDigits = 16;

struct Columns {
  std::string identity;
  bool has_logprobs;
};

Columns columns_of(const TokenFile& file) {
  const Json manifest = parse_json_or_discard<Json>(file.manifest());
  const Json rollouts = manifest.is_object() ? manifest.value("rollouts", Json()) : Json();
  check(rollouts.is_object() && rollouts.contains("values") && rollouts["values"].is_string() &&
            rollouts.contains("logprobs") && rollouts["logprobs"].is_boolean(),
        file.path(), ": has no rollouts and no labels: make it with prepare --records");
  return {rollouts["values"], rollouts["logprobs"]};
}

std::unique_ptr<const TokenColumn> column_of(const TokenFile& file, const std::string& path,
                                             const std::string& identity) {
  check(std::filesystem::exists(path), path, ": is missing, and holds values of ", file.path(),
        ": copy it, too, or ", remedy_of(file.path()));
  return std::make_unique<const TokenColumn>(path, file.whole_size(), identity, remedy_of(file.path()));
}

void check_logprobs(const TokenColumn& column, int64_t tokens) {
  constexpr int64_t kMostRead = 1 << 20;
  std::vector<float> values;
  for (int64_t begin = 0; begin < tokens; begin += std::ssize(values)) {
    values.resize(static_cast<size_t>(std::min(tokens - begin, kMostRead)));
    column.read(begin, values);
    for (size_t i = 0; i < values.size(); ++i)
      check(values[i] <= kMostLogProbability, column.path(), ": has ", values[i], " for token ",
            begin + static_cast<int64_t>(i), ", must be a log-probability, at most ", kMostLogProbability,
            ": make ", column.path(), " and its token file again");
  }
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

std::string logprobs_path(const std::string& token_file) { return token_file + ".logprobs"; }
std::string advantages_path(const std::string& token_file) { return token_file + ".advantages"; }

std::unique_ptr<const TokenColumn> advantages_of(const TokenFile& file) {
  return column_of(file, advantages_path(file.path()), columns_of(file).identity);
}

std::unique_ptr<const TokenColumn> logprobs_of(const TokenFile& file) {
  const Columns columns = columns_of(file);
  if (!columns.has_logprobs) return {};
  std::unique_ptr<const TokenColumn> column = column_of(file, logprobs_path(file.path()), columns.identity);
  check_logprobs(*column, file.whole_size());
  return column;
}

void AnswerColumnWriter::add(std::span<const int32_t> tokens, std::span<const uint8_t> trained,
                             const TokenValues& values) {
  if (values.advantages.empty()) return;
  const auto append = [&](std::span<const float> of_trained, std::vector<float>& column) {
    size_t next = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool has_value = trained.empty() || trained[i] != 0;
      check(!has_value || next < of_trained.size(), path_, ": ", of_trained.size(),
            " values for more trained tokens");
      column.push_back(has_value ? of_trained[next++] : 0);
    }
    content_.add(of_trained.data(), of_trained.size_bytes());
  };
  content_.add(tokens.data(), tokens.size_bytes());
  content_.add(trained.data(), trained.size());
  append(values.advantages, advantages_);
  if (!values.logprobs.empty()) append(values.logprobs, logprobs_);
}

std::string AnswerColumnWriter::added_to(const std::string& manifest) const {
  if (advantages_.empty()) return manifest;
  Json all = manifest.empty() ? Json::object() : parse_json<Json>(manifest);
  all["rollouts"] = {{"values", content_.hex().substr(0, kIdentityDigits)}, {"logprobs", !logprobs_.empty()}};
  return json_text(all, kOneLine, InvalidUtf8::replaced);
}

void AnswerColumnWriter::complete() {
  if (advantages_.empty()) return;
  const std::string identity = content_.hex().substr(0, kIdentityDigits);
  files_.push_back(complete_token_column(advantages_path(path_), identity, advantages_));
  if (logprobs_.empty()) return;
  check(logprobs_.size() == advantages_.size(), path_, ": only some rollouts have log-probabilities");
  files_.push_back(complete_token_column(logprobs_path(path_), identity, logprobs_));
}

void AnswerColumnWriter::finish() {
  for (const std::unique_ptr<CheckedNewFile>& file : files_) file->finish();
}

}  // namespace flatshard
