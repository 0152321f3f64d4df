#pragma once
// The documents that a record becomes in a token file (records.h), and the token values of a rollout.

#include <vector>

#include "text/data/rollout.h"
#include "text/data/sample_encoder.h"

namespace flatshard {

struct RecordDocuments {
  std::vector<Sample> documents{};  // a pair has chosen and rejected
  RolloutValues values{};           // a rollout has one value for each trained token
  float label = 0;                  // 1 or -1 for a labeled answer
};

// The encoder chooses the kind of the record. `another` is the previous record (for the first, the last one);
// only labels read it. An Error begins with `record.where`.
RecordDocuments encode_documents(const SampleEncoder& encoder, const Record& record, const Record& another);

// The record as samples with readable texts: itself, the two of a pair, or one of a rollout unless it has
// only tokens.
std::vector<Record> sample_records(const Record& record, RecordKind kind);

// The number of trained tokens.
int64_t trained_in(const Sample& sample);

}  // namespace flatshard
