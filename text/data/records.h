#pragma once
// What a record of data is, and how many documents of a token file it becomes.
//   samples   a text, a prompt with its completion, or a conversation: one document
//   pairs     an answer that was chosen and one that was rejected (preference.h): two documents, in this
//   order rollouts  an answer that a model sampled, with its advantage or reward (rollout.h): one document

#include <array>
#include <cstdint>

#include "runtime/named.h"

namespace flatshard {

enum class RecordKind { samples, pairs, rollouts };
constexpr auto value_names(RecordKind) { return std::array{"samples", "pairs", "rollouts"}; }

constexpr int64_t documents_per_record(RecordKind kind) { return kind == RecordKind::pairs ? 2 : 1; }

}  // namespace flatshard
