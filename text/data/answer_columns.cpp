#include "text/data/answer_columns.h"

#include <algorithm>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/data/kept_files.h"
#include "text/data/rollout.h"
#include "text/data/token_file.h"

namespace flatshard {
namespace {

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
