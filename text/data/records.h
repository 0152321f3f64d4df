#pragma once
// The kinds of data records, and the number of documents that each becomes in a token file.
//
//   samples   a text, a prompt with its completion, or a conversation: one document
//   pairs     an answer that was chosen and one that was rejected (preference.h): two documents
//   labels    an answer that is good or bad (preference.h): two documents; the second is an answer to the
//             prompt of the record before
//   rollouts  an answer that a model sampled, with its advantage or reward (rollout.h): one document

#include <array>
#include <cstdint>

#include "runtime/named.h"

namespace flatshard {

enum class RecordKind { samples, pairs, labels, rollouts };
constexpr auto value_names(RecordKind) { return std::array{"samples", "pairs", "labels", "rollouts"}; }

// The name of a record in messages.
constexpr const char* noun_of(RecordKind kind) {
  constexpr std::array nouns{"document", "pair", "labeled answer", "rollout"};
  return nouns[static_cast<size_t>(kind)];
}

constexpr int64_t documents_per_record(RecordKind kind) {
  return kind == RecordKind::pairs || kind == RecordKind::labels ? 2 : 1;
}

}  // namespace flatshard
