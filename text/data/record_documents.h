#pragma once
// What a record becomes in a token file (records.h): its documents, and of a rollout the values of its
// tokens.

#include <vector>

#include "text/data/rollout.h"
#include "text/data/sample_encoder.h"

namespace flatshard {

struct RecordDocuments {
  std::vector<Sample> documents{};  // of a pair chosen and rejected
  RolloutValues values{};           // of a rollout, whose number is that of its trained tokens
  float label = 0;                  // of a labeled answer: 1 or -1
};

// Of the encoder's kind of records. An Error begins with the record's `where`.
// `another` is the one before, or the last; only labels read it.
RecordDocuments encode_documents(const SampleEncoder& encoder, const Record& record, const Record& another);

// The record as samples, whose texts can be read: itself, the two of a pair, or one of a rollout unless it
// has only tokens.
std::vector<Record> sample_records(const Record& record, RecordKind kind);

// The tokens that are trained.
int64_t trained_in(const Sample& sample);

}  // namespace flatshard
