#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "text/data/dataset.h"
#include "text/data/preference.h"

namespace flatshard {
namespace {

Sample encode_sample(const SampleEncoder& encoder, const Record& record) {
  try {
    return encoder.encode(record);
  } catch (const Error& error) {
    const bool is_pair = record.is_json && has_member(record.text, {"chosen"}, record.where) &&
                         !has_member(record.text, {"completion", "messages", "conversations"}, record.where);
    if (!is_pair) throw;
    throw Error(
        str(error.what(), "; it has \"chosen\", so it may be a pair, which prepare --records pairs reads"),
        error.where);
  }
}

// Images are not supported in sequences whose answers losses compare.
void refuse_images(const Sample& sample, const Record& record, RecordKind kind) {
  check(sample.images.empty(), record.where, ": has images, which ", kind,
        " cannot have: remove them, or the record");
}

Sample sample_of_tokens(const Rollout& rollout, const Record& record, int64_t vocab) {
  Sample sample{.tokens = rollout.prompt, .trained = std::vector<uint8_t>(rollout.prompt.size())};
  sample.tokens.insert(sample.tokens.end(), rollout.completion.begin(), rollout.completion.end());
  sample.trained.resize(sample.tokens.size(), 1);
  for (const int32_t token : sample.tokens)
    check(token < vocab, record.where, ": has the token ", token, ", which is outside the vocabulary of ",
          vocab);
  return sample;
}

RecordDocuments encode_rollout(const SampleEncoder& encoder, const Record& record) {
  Rollout rollout = rollout_of(record);
  RecordDocuments made{.documents = {rollout.sample ? encoder.encode(*rollout.sample)
                                                    : sample_of_tokens(rollout, record, encoder.vocab())},
                       .values = std::move(rollout.values)};
  const Sample& sample = made.documents.front();
  refuse_images(sample, record, RecordKind::rollouts);
  const int64_t trained = trained_in(sample);
  const auto check_count = [&](const std::vector<float>& values, const char* name) {
    check(values.empty() || std::ssize(values) == trained, record.where, ": has ", values.size(), ' ', name,
          " for ", trained,
          " trained tokens: must have one for each token of the completion, with the one that "
          "ends it");
  };
  check_count(made.values.logprobs, "logprobs");
  check_count(made.values.advantages, "advantages");
  if (rollout.advantage)
    made.values.advantages.assign(static_cast<size_t>(trained), static_cast<float>(*rollout.advantage));
  return made;
}

}  // namespace

int64_t trained_in(const Sample& sample) {
  return sample.trained.empty() ? std::ssize(sample.tokens)
                                : std::count(sample.trained.begin(), sample.trained.end(), uint8_t{1});
}

RecordDocuments encode_documents(const SampleEncoder& encoder, const Record& record, const Record& another) {
  if (encoder.records() == RecordKind::samples) return {.documents = {encode_sample(encoder, record)}};
  if (encoder.records() == RecordKind::rollouts) return encode_rollout(encoder, record);
  RecordDocuments made;
  if (encoder.records() == RecordKind::labels) {
    const LabeledAnswer answer = labeled_answer_of(record, another);
    made.label = answer.is_good ? 1.0f : -1.0f;
    for (const Record& of : {answer.own, answer.other}) {
      made.documents.push_back(encoder.encode(of));
      refuse_images(made.documents.back(), record, RecordKind::labels);
    }
    return made;
  }
  for (const Record& answer : sample_records(record, RecordKind::pairs)) {
    made.documents.push_back(encoder.encode(answer));
    refuse_images(made.documents.back(), record, RecordKind::pairs);
  }
  return made;
}

std::vector<Record> sample_records(const Record& record, RecordKind kind) {
  if (kind == RecordKind::samples) return {record};
  if (kind == RecordKind::pairs) {
    PreferencePair pair = pair_of(record);
    return {std::move(pair.chosen), std::move(pair.rejected)};
  }
  if (kind == RecordKind::labels) return {labeled_answer_of(record, record).own};
  Rollout rollout = rollout_of(record);
  if (!rollout.sample) return {};
  return {std::move(*rollout.sample)};
}

}  // namespace flatshard
